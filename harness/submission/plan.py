"""Defines a submission, and collects the files of its tree."""

from collections.abc import Mapping
import dataclasses
import functools
import io
import os
import pathlib
import tarfile
from typing import Any

from harness.loadgen import compliance
from harness.loadgen import loadgen_log
from harness.results import figures
from harness.results import job_result
from harness.rules import requirements
from harness.submission import endpoints_report
from harness.submission import git
from harness.submission.content import descriptions
from harness.submission.content import log_files
from harness.submission.content import readme
from saxml_ext.common import files as files_lib

# These folders compute and measure results. The other folders test them.
_FOLDERS = ('bundled', 'converters', 'harness', 'saxml_ext', 'serve')
_SUFFIXES = ('.py', '.proto', '.cc', '.h', '.bzl')
_DIRTY = '-dirty'
# `bazel run` sets this to the checkout.
WORKSPACE = 'BUILD_WORKSPACE_DIRECTORY'


def source_files(commit: str) -> dict[str, bytes]:
  """Returns the sources, by their paths in the repository.

  Args:
    commit: The commit that produced the results. The current sources are
      returned if the checkout does not have the commit, or if files were
      changed.

  Raises:
    ValueError: The checkout is unknown. Beside the program are only the sources
      that it needs itself.
  """
  root = os.environ.get(WORKSPACE)
  if not root:
    raise ValueError(
      'the sources of the system are not known, because Bazel did not start'
      ' this program. Use `./bazelw run //harness:submission`, or set'
      f' {WORKSPACE} to the checkout'
    )
  if commit and not commit.endswith(_DIRTY):
    archive = git.run('-C', root, 'archive', '--format=tar', commit)
    if archive.returncode == 0:
      return _from_archive(archive.stdout)
  return {
    path.relative_to(root).as_posix(): path.read_bytes()
    for folder in _FOLDERS
    for path in sorted(pathlib.Path(root, folder).rglob('*'))
    if path.is_file()
    and _is_source(path.relative_to(root), path.stat().st_size)
  }


def _from_archive(content: bytes) -> dict[str, bytes]:
  files = {}
  with tarfile.open(fileobj=io.BytesIO(content)) as archive:
    for member in archive:
      file = archive.extractfile(member) if member.isfile() else None
      if file and _is_source(pathlib.PurePosixPath(member.name), member.size):
        files[member.name] = file.read()
  return files


def _is_source(path: pathlib.PurePath, size: int) -> bool:
  """Returns True if a file is a source. Checkers reject empty files."""
  return (
    path.parts[0] in _FOLDERS
    and size > 0
    and (path.suffix in _SUFFIXES or path.name == 'BUILD')
    and not path.name.endswith('_test.py')
    and 'testing' not in path.parts
  )


# The content of a file in the tree: bytes, or the path of a file to copy.
Content = bytes | pathlib.Path
Files = dict[str, Content]

# The name of the implementation, because a submitter can have several.
_IMPLEMENTATION = 'harness'


@dataclasses.dataclass(frozen=True)
class Submission:
  """A submission.

  Attributes:
    round: The round, such as "v4.0".
    division: The division: open, closed or network.
    category: The category, edge or datacenter, which becomes system_type.
    submitter: The name of the organization.
    system_name: The name of the system.
    description: The values of systems/<system>.json that replace those of the
      results.
    notes: The text to append to values of the description.
    results: The results, one for each model and scenario.
    model_name: The name of the model in the open division, or None for the
      benchmark's name.
    measurements: The user's values of the measurements JSON.
    calibration: The user's calibration.md, or None.
    diagram: The user's diagram of the network, or None.
    inference_dir: The checkout of mlcommons/inference, or None.
    reports: The reports of MLPerf Endpoints.
  """

  round: str
  division: str
  category: str
  submitter: str
  system_name: str
  description: Mapping[str, Any]
  notes: Mapping[str, str]
  results: tuple[job_result.JobResult, ...]
  model_name: str | None = None
  measurements: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  calibration: pathlib.Path | None = None
  diagram: pathlib.Path | None = None
  inference_dir: pathlib.Path | None = None
  reports: tuple[endpoints_report.Report, ...] = ()

  @property
  def root(self) -> str:
    """The folder of the submitter within the tree."""
    return f'{self.division}/{self.submitter}'

  @property
  def system(self) -> str:
    """The name of the system's files and folders."""
    return descriptions.system_id(self.system_name)

  @functools.cached_property
  def system_description(self) -> dict[str, str]:
    """The content of systems/<system>.json."""
    detected: dict[str, Any] = {}
    for result in self.results:
      detected |= result.entry.description
    fixed = {
      'division': self.division,
      'submitter': self.submitter,
      'system_name': self.system_name,
      'system_type': self.category,
    }
    if self.division == requirements.NETWORK:
      fixed['is_network'] = 'True'
    return descriptions.merged(detected, self.description, fixed, self.notes)

  @property
  def models(self) -> list[str]:
    """The benchmark's models of all results and reports."""
    names = {result.entry.model for result in self.results}
    return sorted(names | {report.model for report in self.reports})

  def model(self, result: job_result.JobResult) -> str:
    """Returns the model name of a result in the submission."""
    return self.model_name or result.entry.model

  def compliance_tests(self, result: job_result.JobResult) -> tuple[str, ...]:
    """Returns the compliance tests that a result needs."""
    if not requirements.is_closed(self.division):
      return ()
    return result.benchmark.compliance_tests(self.round)

  def measured(self, result: job_result.JobResult) -> dict[str, str | None]:
    """Returns the measurements JSON of a result."""
    return descriptions.measurements(result.entry, self.measurements)

  def measured_for(
    self, report: endpoints_report.Report
  ) -> dict[str, str | None]:
    """Returns the measurements JSON of a report, which the user must know."""
    del report
    return {key: self.measurements.get(key) for key in descriptions.KEYS}


def files(submission: Submission) -> Files:
  """Returns the files of a tree by path, from results that passed the checks.

  Raises:
    OSError, ValueError: A log cannot be read.
  """
  root = submission.root
  outputs: Files = {
    f'{root}/systems/{submission.system}.json': _json(
      submission.system_description
    )
  }
  outputs |= _calibration(submission)
  if submission.diagram:
    name = descriptions.system_id(submission.diagram.name)
    outputs[f'{root}/documentation/{name}'] = submission.diagram
  if submission.model_name:
    mapping = {submission.model_name: submission.models[0]}
    outputs[f'{root}/model_mapping.json'] = _json(mapping)
  by_model: dict[str, list[job_result.JobResult]] = {}
  for result in submission.results:
    by_model.setdefault(submission.model(result), []).append(result)
    outputs |= _result(submission, result)
  for report in submission.reports:
    by_model.setdefault(submission.model_name or report.model, [])
    outputs |= _report(submission, report)
  for model, results in by_model.items():
    text = readme.code(model, [result.entry for result in results])
    folder = layout(submission.round, submission.system, model, '').code
    folder = f'{root}/{folder}'
    outputs[f'{folder}/README.md'] = text.encode()
    commits = [item.entry.versions.get('commit', '') for item in results]
    sources = source_files(commits[0] if commits else '')
    outputs |= {f'{folder}/{path}': sources[path] for path in sources}
  return outputs


def _calibration(submission: Submission) -> Files:
  path = f'{submission.root}/calibration.md'
  if submission.calibration:
    return {path: submission.calibration}
  if not requirements.needs_calibration(submission.round, submission.division):
    return {}
  types = {
    submission.model(result): submission.measured(result)['weight_data_types']
    for result in submission.results
  }
  return {path: readme.calibration(types).encode()}


@dataclasses.dataclass(frozen=True)
class Layout:
  """The paths of a result's files within a submitter's folder.

  Attributes:
    results: The folder of the logs.
    measured: The folder of the measurements JSON and user.conf.
    tests: The folder of the compliance tests.
    code: The folder of the model's code.
    measurements: The file name of the measurements JSON.
  """

  results: str
  measured: str
  tests: str
  code: str
  measurements: str


def layout(round_name: str, system: str, model: str, scenario: str) -> Layout:
  """Returns the layout of a result in a round."""
  path = f'{system}/{model}/{scenario}'
  results = f'results/{path}'
  if requirements.results_hold_all(round_name):
    code = f'src/{model}'
    return Layout(results, results, results, code, 'measurements.json')
  return Layout(
    results,
    f'measurements/{path}',
    f'compliance/{path}',
    f'code/{model}/{_IMPLEMENTATION}',
    f'{system}_{_IMPLEMENTATION}_{scenario}.json',
  )


def _layout(submission: Submission, result: job_result.JobResult) -> Layout:
  return layout(
    submission.round,
    submission.system,
    submission.model(result),
    result.entry.scenario,
  )


def _result(submission: Submission, result: job_result.JobResult) -> Files:
  """Returns the files of one result."""
  where, root = _layout(submission, result), submission.root
  measured = f'{root}/{where.measured}'
  values = submission.measured(result)
  page = readme.text(
    result.entry, submission.system_name, submission.model(result), values
  )
  outputs: Files = {
    f'{measured}/{where.measurements}': _json(values),
    f'{measured}/user.conf': result.user_conf,
    f'{measured}/README.md': page.encode(),
  }
  if requirements.needs_mlperf_conf(submission.round):
    outputs[f'{measured}/{log_files.MLPERF_CONF}'] = _conf(submission, result)
  outputs |= logs(result, f'{root}/{where.results}')
  for test in submission.compliance_tests(result):
    outputs |= _compliance(result, test, f'{root}/{where.tests}/{test}')
  return outputs


def _report(submission: Submission, report: endpoints_report.Report) -> Files:
  """Returns the files of a report."""
  model = submission.model_name or report.model
  where = layout(submission.round, submission.system, model, report.scenario)
  values = submission.measured_for(report)
  page = readme.report(submission.system_name, model, report.scenario, values)
  folder = f'{submission.root}/{where.results}'
  return {
    f'{folder}/{where.measurements}': _json(values),
    f'{folder}/README.md': page.encode(),
  } | {
    f'{folder}/{name}': report.directory / name
    for name in endpoints_report.FILES
  }


def logs(result: job_result.JobResult, base: str) -> Files:
  """Returns the logs of a result's runs, in a folder of the tree.

  Raises:
    OSError: A log cannot be read.
  """
  return _accuracy(result, f'{base}/accuracy') | _performance(
    result.performance_dir, f'{base}/performance/run_1'
  )


def _conf(submission: Submission, result: job_result.JobResult) -> bytes:
  inference, name = submission.inference_dir, submission.round
  if inference and (text := log_files.official_conf(inference, name)):
    return text
  assert result.performance is not None  # The checks ensure this.
  return log_files.conf_of_log(
    result.performance, result.entry.benchmark, result.entry.scenario
  )


def _accuracy(result: job_result.JobResult, folder: str) -> Files:
  log = result.accuracy_dir / loadgen_log.ACCURACY_LOG
  score = result.accuracy_text.read_text(encoding='utf-8').rstrip('\n')
  return {
    f'{folder}/{figures.ACCURACY_FILE}': (
      f'{score}\n{log_files.hash_line(log)}'.encode()
    ),
    f'{folder}/{loadgen_log.ACCURACY_LOG}': log_files.truncated(log),
  } | _performance(result.accuracy_dir, folder)


def _performance(directory: pathlib.Path, folder: str) -> Files:
  return {
    f'{folder}/{name}': directory / name
    for name in (loadgen_log.DETAIL_LOG, loadgen_log.SUMMARY_LOG)
  }


def _compliance(result: job_result.JobResult, test: str, folder: str) -> Files:
  """Returns the files of a compliance test, created from its run's logs."""
  directory = result.compliance_dir(test)
  if test == compliance.TEST06:
    name = loadgen_log.ACCURACY_LOG
    return {
      f'{folder}/{compliance.ACCURACY_VERDICT}': (
        result.tokens_verdict().text.encode()
      ),
      f'{folder}/accuracy/{name}': directory / name,
    }
  assert result.performance is not None  # The checks ensure this.
  speed = compliance.verify_performance(
    test, result.entry.scenario, result.performance, result.compliance[test]
  )
  outputs = _performance(directory, f'{folder}/performance/run_1')
  outputs[f'{folder}/{compliance.PERFORMANCE_VERDICT}'] = speed.text.encode()
  if test == compliance.TEST01:
    answers_log = directory / loadgen_log.ACCURACY_LOG
    answers = compliance.verify_accuracy(
      result.accuracy_dir / loadgen_log.ACCURACY_LOG, answers_log
    )
    outputs |= {
      f'{folder}/{compliance.ACCURACY_VERDICT}': answers.text.encode(),
      f'{folder}/accuracy/{loadgen_log.ACCURACY_LOG}': log_files.truncated(
        answers_log
      ),
      f'{folder}/accuracy/{figures.ACCURACY_FILE}': (
        log_files.hash_line(answers_log).encode()
      ),
    }
    if not answers.passed:
      outputs |= {
        f'{folder}/accuracy/{n}': directory / n for n in compliance.SCORES
      }
  return outputs


def _json(record: Mapping[str, Any]) -> bytes:
  return files_lib.encode_json(dict(record)).encode()
