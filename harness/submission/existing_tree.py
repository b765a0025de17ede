"""Checks a submission's tree that already exists on disk.

The tree is read back into a submission, so the same checks apply to it as to a
new submission. The tree does not contain some facts, such as the beam size.
These are not checked.
"""

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import functools
import pathlib
import re
from typing import Any

from harness import errors
from harness.benchmarks import all as benchmarks
from harness.loadgen import compliance
from harness.loadgen import loadgen_log
from harness.results import entry as entry_lib
from harness.results import figures
from harness.results import job_result
from harness.rules import requirements
from harness.rules import rounds
from harness.submission import endpoints_report
from harness.submission import plan
from harness.submission import tree
from harness.submission.checks import log_checks
from harness.submission.checks import submission_checks
from harness.submission.content import descriptions
from harness.submission.content import log_files
from saxml_ext.common import files

_SCENARIOS = {name.lower(): name for name in rounds.SCENARIOS}


@dataclasses.dataclass(frozen=True)
class TreeResult(job_result.JobResult):
  """A result in a tree.

  Attributes:
    measured: The folder of the measurements JSON and user.conf.
    tests: The folder of the compliance tests.
    code: The folder of the model's code.
    measurements: The values of the measurements JSON.
  """

  measured: pathlib.Path
  tests: pathlib.Path
  code: pathlib.Path
  measurements: Mapping[str, Any]
  truncated = True

  @property
  def name(self) -> str:
    return str(self.directory)

  @property
  def user_conf(self) -> pathlib.Path:
    return self.measured / job_result.USER_CONF

  def compliance_dir(self, test: str) -> pathlib.Path:
    return self.tests / test / 'performance' / 'run_1'

  def scores_dir(self, test: str) -> pathlib.Path:
    return self.tests / test / 'accuracy'

  def same_answers(self, test: str) -> bool:
    verdict = self.tests / test / compliance.ACCURACY_VERDICT
    return compliance.PASS in verdict.read_text('utf-8')

  def has_test(self, test: str) -> bool:
    if test != compliance.TEST06:
      return super().has_test(test)
    return (self.tests / test / compliance.ACCURACY_VERDICT).is_file()

  def tokens_verdict(self) -> compliance.Verdict:
    path = self.tests / compliance.TEST06 / compliance.ACCURACY_VERDICT
    text = path.read_text('utf-8')
    lines = re.findall(r'^(.*) check pass: (True|Skipped)$', text, re.MULTILINE)
    skips = rounds.SCENARIOS[self.entry.scenario].at_once
    expected = {
      'First token': 'Skipped' if skips else 'True',
      'EOS': 'True',
      'Sample length': 'True',
    }
    return compliance.Verdict(text, dict(lines) == expected)


@dataclasses.dataclass(frozen=True)
class TreeSubmission(plan.Submission):
  """A submission of one system in a tree."""

  @functools.cached_property
  def system_description(self) -> dict[str, str]:
    return {key: str(value) for key, value in self.description.items()}

  def measured(self, result: job_result.JobResult) -> dict[str, str | None]:
    assert isinstance(result, TreeResult)
    return {key: result.measurements.get(key) for key in descriptions.KEYS}

  def measured_for(
    self, report: endpoints_report.Report
  ) -> dict[str, str | None]:
    values = _json(report.directory / 'measurements.json')
    return {key: values.get(key) for key in descriptions.KEYS}


def read(
  root: pathlib.Path, round_name: str | None, submitter: str | None
) -> tuple[list[TreeSubmission], list[str]]:
  """Reads the submissions of a tree, one per system.

  Args:
    root: The folder that contains open, closed or network.
    round_name: The round, such as "v4.0". If it is None, the seeds in the logs
      determine the round.
    submitter: The submitter to read, or None for all submitters.

  Returns:
    The submissions, and the problems of unreadable files.
  """
  submissions, problems = [], []
  for path in sorted(root.glob(f'*/{submitter or "*"}/results/*/')):
    division = path.relative_to(root).parts[0]
    if division in requirements.DIVISIONS:
      submission, unread = _submission(path, division, round_name)
      problems += unread
      submissions += [submission] if submission else []
  if not submissions and not problems:
    problems.append(
      f'{root} has no results of {submitter or "any submitter"}. A tree has'
      f' {{{",".join(requirements.DIVISIONS)}}}/<submitter>/results/<system>/'
      '<model>/<scenario>.'
    )
  return submissions, problems


def problems(
  root: pathlib.Path,
  submission: TreeSubmission,
  jobs: Sequence[job_result.JobResult],
) -> Iterator[str]:
  """Yields the problems of a submission in a tree.

  Args:
    root: The tree.
    submission: The submission in the tree.
    jobs: The results with full logs. The tree must contain their logs
      unchanged.
  """
  home = root / submission.root
  description = home / 'systems' / f'{submission.system_name}.json'
  for key, folder in (
    ('division', submission.division),
    ('submitter', submission.submitter),
  ):
    if submission.description.get(key) != folder:
      yield (
        f'{description}: {key} is {submission.description.get(key)!r}, but the'
        f' folder is {folder!r}.'
      )
  for text in submission_checks.problems(submission):
    yield text if str(home) in text else f'{description}: {text}'
  if requirements.needs_calibration(submission.round, submission.division):
    if not [*home.glob('calibration.*'), *home.glob('documentation/calib*')]:
      yield f'{home} has no calibration.md, but {submission.round} requires it.'
  paths = [path for path in home.rglob('*') if path.is_file()]
  yield from tree.problems({str(path): path for path in paths})
  for result in submission.results:
    assert isinstance(result, TreeResult)
    yield from _result_problems(submission, result, jobs)


def _submission(
  path: pathlib.Path, division: str, round_name: str | None
) -> tuple[TreeSubmission | None, list[str]]:
  """Reads the submission of the system whose results are in `path`."""
  home = path.parents[1]
  results, reports, problems = [], [], []
  try:
    description = _json(home / 'systems' / f'{path.name}.json')
    names = home / 'model_mapping.json'
    mapping = _json(names) if division == 'open' and names.is_file() else {}
  except (OSError, ValueError) as error:
    return None, [errors.reason(error)]
  for scenario in sorted(path.glob('*/*/')):
    try:
      if (scenario / endpoints_report.CONFIG).is_file():
        model = mapping.get(scenario.parent.name, scenario.parent.name)
        name = _SCENARIOS.get(scenario.name.lower(), scenario.name)
        reports.append(endpoints_report.read(model, name, scenario))
      else:
        results.append(_result(scenario, home, mapping, round_name))
    except (OSError, ValueError) as error:
      problems.append(errors.reason(error))
  names_of_rounds = sorted({result.entry.round for result in results})
  if len(names_of_rounds) > 1:
    problems.append(
      f'{path} has results of {", ".join(names_of_rounds)}, but a submission'
      ' is for one round.'
    )
  if not results and not reports:
    return None, problems or [f'{path} has no results.']
  calibration = home / 'calibration.md'
  diagrams = sorted(home.glob('documentation/*'))
  return TreeSubmission(
    round=(*names_of_rounds, round_name or rounds.LATEST)[0],
    division=division,
    category=str(description.get('system_type')),
    submitter=home.name,
    system_name=path.name,
    description=description,
    notes={},
    results=tuple(results),
    calibration=calibration if calibration.is_file() else None,
    diagram=diagrams[0] if diagrams else None,
    reports=tuple(reports),
  ), problems


def _result(
  path: pathlib.Path,
  home: pathlib.Path,
  mapping: Mapping[str, str],
  round_name: str | None,
) -> TreeResult:
  """Reads the result in the folder of a scenario.

  Raises:
    OSError, ValueError: The result cannot be read, or its model or scenario is
      unknown.
  """
  folder = path.parent.name
  model = mapping.get(folder, folder)
  scenario = _SCENARIOS.get(path.name.lower())
  if model not in benchmarks.MODELS or scenario is None:
    raise ValueError(
      f'{path} is {path.name} of {model}, but this program checks only'
      f' {", ".join(rounds.SCENARIOS)} of {", ".join(benchmarks.MODELS)}. Check'
      ' it with --run_checker.'
    )
  benchmark = benchmarks.MODELS[model]
  performance = job_result.log(path / 'performance' / 'run_1')
  round_name = round_name or _round_of(path, performance)
  where = plan.layout(round_name, path.parents[1].name, folder, path.name)
  measured, tests = home / where.measured, home / where.tests
  pages = sorted(
    measured.glob('measurements.json' if measured == path else '*.json')
  )
  score = path / 'accuracy' / figures.ACCURACY_FILE
  text = score.read_text('utf-8') if score.is_file() else ''
  metrics = {
    metric: value
    for metric in (*benchmark.least(model), 'gen_num')
    if (value := log_checks.figure(text, metric)) is not None
  }
  return TreeResult(
    directory=path,
    entry=entry_lib.Entry(
      benchmark=benchmark.name,
      model=model,
      scenario=scenario,
      round=round_name,
      system='tree',
      parameters={},
      command=(),
      began='',
      ended='',
      accuracy=entry_lib.Accuracy(metrics, text),
    ),
    accuracy=job_result.log(path / 'accuracy'),
    performance=performance,
    compliance={
      test: log
      for test in (compliance.TEST01, compliance.TEST05)
      if (log := job_result.log(tests / test / 'performance' / 'run_1'))
    },
    measured=measured,
    tests=tests,
    code=home / where.code.split('/')[0] / folder,
    measurements=_json(pages[0]) if pages else {},
  )


def _round_of(path: pathlib.Path, log: loadgen_log.RunLog | None) -> str:
  seed = log and log.values.get('effective_qsl_rng_seed')
  for round_ in rounds.ROUNDS.values():
    if round_.qsl_seed == seed:
      return round_.name
  raise ValueError(
    f'{path}: The seed of its performance run is {seed}, but none of'
    f' these rounds has it: {", ".join(rounds.ROUNDS)}. Pass --round.'
  )


def _result_problems(
  submission: TreeSubmission,
  result: TreeResult,
  jobs: Sequence[job_result.JobResult],
) -> Iterator[str]:
  """Yields the problems of a result's files."""
  required = [result.measured / 'README.md']
  if requirements.needs_mlperf_conf(submission.round):
    required.append(result.measured / log_files.MLPERF_CONF)
  required.append(result.accuracy_dir / loadgen_log.ACCURACY_LOG)
  for path in required:
    if not path.is_file():
      yield f'{path} is missing, but {submission.round} requires it.'
  if not any(path.is_file() for path in result.code.rglob('*')):
    yield f'{result.code} has no code, but {submission.round} requires it.'
  tests = submission.compliance_tests(result)
  cut = [result.accuracy_dir]
  cut += [
    result.scores_dir(test) for test in tests if test == compliance.TEST01
  ]
  for directory in cut:
    yield from log_files.truncation_problems(directory)
  for test in tests:
    if test == compliance.TEST06:
      continue  # It does not measure the speed.
    verdict = result.tests / test / compliance.PERFORMANCE_VERDICT
    if not verdict.is_file() or compliance.PASS not in verdict.read_text():
      yield f'{verdict} is missing or does not contain "{compliance.PASS}".'
  for job in jobs:
    if (job.entry.model, job.entry.scenario) == (
      result.entry.model,
      result.entry.scenario,
    ):
      yield from _unlike(result, job)


def _unlike(result: TreeResult, job: job_result.JobResult) -> Iterator[str]:
  """Yields the files of the tree that differ from those of the result's job."""
  for path, content in plan.logs(job, result.directory.as_posix()).items():
    expected = content if isinstance(content, bytes) else content.read_bytes()
    file = pathlib.Path(path)
    if not file.is_file() or file.read_bytes() != expected:
      yield f'{file} differs from {job.directory}. Create the tree again.'


def _json(path: pathlib.Path) -> dict[str, Any]:
  return files.read_json(path, dict[str, Any])
