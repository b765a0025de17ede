"""Makes the tree of an MLPerf submission from stored results.

submission --result=results/offline --result=results/server --round=v4.0
  --division=open --category=datacenter --submitter=Example
  --system_name=tpu_v5e_x4 --output=submission

Everything is checked before anything is written; exit code 0 means that the tree
is there and, with --run_checker, that the official checker accepts it.
"""

from collections.abc import Sequence
import pathlib

from absl import app
from absl import flags

from harness import dashes
from harness import errors
from harness.caching import cache_flag
from harness.description import description
from harness.loadgen import rounds
from harness.pages import find
from harness.submission import archive
from harness.submission import branch
from harness.submission import checker
from harness.submission import job_result
from harness.submission import plan
from harness.submission import tree
from harness.submission.checks import requirements
from harness.submission.checks import whole
from harness.submission.content import measurement
from saxml_ext.common import user_path

_RESULT = flags.DEFINE_multi_string(
  'result',
  [],
  'Directory of a job, or the beginning of the id of its result; once for each'
  ' model and scenario.',
)
_RESULTS_DIR = flags.DEFINE_string(
  'results_dir',
  None,
  "Where results are looked for by their ids. Default: the cache's results.",
)
_OUTPUT = flags.DEFINE_string('output', 'submission', 'Where the tree goes.')
_ROUND = flags.DEFINE_enum(
  'round', None, list(rounds.ROUNDS), 'Round. Default: that of the results.'
)
_DIVISION = flags.DEFINE_enum(
  'division', requirements.OPEN, requirements.DIVISIONS, 'Division.'
)
_CATEGORY = flags.DEFINE_enum(
  'category',
  requirements.EDGE,
  requirements.CATEGORIES,
  'Category, which becomes the system type of the description.',
)
_SUBMITTER = flags.DEFINE_string('submitter', None, 'Your organization.')
_SYSTEM_NAME = flags.DEFINE_string(
  'system_name', None, 'Name of the system, which its files carry.'
)
_SYSTEM_DESCRIPTION = flags.DEFINE_string(
  'system_description',
  None,
  'JSON or YAML of official keys, for what the results do not say of their'
  ' system, or say wrongly.',
)
_HW_NOTES_EXTRA = flags.DEFINE_string(
  'hw_notes_extra', '', 'Text to add to hw_notes of the description.'
)
_SW_NOTES_EXTRA = flags.DEFINE_string(
  'sw_notes_extra', '', 'Text to add to sw_notes of the description.'
)
_MODEL_NAME = flags.DEFINE_string(
  'model_name',
  None,
  'Open division: name of a model that is not the benchmark itself, which'
  ' model_mapping.json leads back to it.',
)
_MEASUREMENTS = flags.DEFINE_string(
  'measurements',
  None,
  'JSON object of what the results do not say of their weights, such as'
  ' weight_data_types.',
)
_CALIBRATION = flags.DEFINE_string(
  'calibration', None, 'Page that says how weights were calibrated.'
)
_CLEAN = flags.DEFINE_bool(
  'clean', False, 'Remove the tree that --output holds already.'
)
_TAR = flags.DEFINE_string(
  'tar',
  None,
  'Also write the tree as an archive. Without a value: <output>.tar.gz.',
  boolean=True,
)
_GIT_BRANCH = flags.DEFINE_string(
  'git_branch', None, 'Also commit the tree on this new branch of --repo.'
)
_REPO = flags.DEFINE_string(
  'repo', None, 'Your clone of the repository that results are pushed to.'
)
_COMMIT_MESSAGE = flags.DEFINE_string(
  'commit_message', None, 'Message of that commit. Default: says what it is.'
)
_RUN_CHECKER = flags.DEFINE_bool(
  'run_checker', False, 'Let the official checker judge the tree.'
)
_INFERENCE_DIR = flags.DEFINE_string(
  'inference_dir', None, 'Your clone of mlcommons/inference.'
)
_CHECKER_PYTHON = flags.DEFINE_string(
  'checker_python', 'python3', 'Python that runs the official checker.'
)


def main(argv: Sequence[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'unexpected argument {argv[1]!r}')
  try:
    _main()
  except (OSError, ValueError, errors.HarnessError) as error:
    raise SystemExit(f'submission: {error}') from error


def _main() -> None:
  output = _path(_OUTPUT.value)
  assert output is not None
  results, problems = job_result.load_all(_RESULT.value, _find)
  submission = _submission(results)
  problems += _problems_of_flags(output)
  files: plan.Files = {}
  if results:
    problems += whole.problems(submission)
  elif not problems:
    problems.append('there is no result to submit: give --result')
  if not problems:
    files = plan.files(submission)
    problems = tree.problems(files)
  if problems:
    listed = '\n'.join(f'  * {problem}' for problem in problems)
    raise SystemExit(
      f'submission: nothing was written; {len(problems)} problems:\n{listed}'
    )
  tree.write(files, output)
  print(
    f'{submission.division} submission to {submission.round}:'
    f' {len(submission.results)} results, {len(files)} files in {output}'
  )
  _hand_over(submission, output)


def _find(name: str) -> str:
  """Directory of a result; see `find.job`."""
  return find.job(name, _results_dir())


def _results_dir() -> str:
  return user_path.resolve(_RESULTS_DIR.value) or cache_flag.get().results


def _submission(results: Sequence[job_result.JobResult]) -> plan.Submission:
  given = _path(_SYSTEM_DESCRIPTION.value)
  measured = _path(_MEASUREMENTS.value)
  round_name = _ROUND.value or (
    results[0].entry.round if results else rounds.SHORT_RUNS
  )
  return plan.Submission(
    round=round_name,
    division=_DIVISION.value,
    category=_CATEGORY.value,
    submitter=_SUBMITTER.value,
    system_name=_SYSTEM_NAME.value,
    description=description.read_file(str(given)) if given else {},
    notes={
      'hw_notes': _HW_NOTES_EXTRA.value,
      'sw_notes': _SW_NOTES_EXTRA.value,
    },
    results=tuple(results),
    model_name=_MODEL_NAME.value,
    measurements=measurement.read(measured) if measured else {},
    calibration=_path(_CALIBRATION.value),
    inference_dir=_path(_INFERENCE_DIR.value),
  )


def _problems_of_flags(output: pathlib.Path) -> list[str]:
  """What would fail only after the tree is written."""
  found = []
  if reason := tree.may_write(output, _CLEAN.value):
    found.append(reason)
  if _GIT_BRANCH.value and not _REPO.value:
    found.append('--git_branch needs --repo, a clone on this machine')
  elif _GIT_BRANCH.value:
    repository = _path(_REPO.value)
    assert repository is not None
    if reason := branch.problem(repository, _GIT_BRANCH.value):
      found.append(reason)
  if _RUN_CHECKER.value and not _INFERENCE_DIR.value:
    found.append(
      '--run_checker needs --inference_dir: '
      + checker.how_to_get(_ROUND.value or 'the round')
    )
  return found


def _hand_over(submission: plan.Submission, output: pathlib.Path) -> None:
  """What the user asked for besides the tree."""
  if _TAR.value and _TAR.value != 'false':
    named = None if _TAR.value == 'true' else _path(_TAR.value)
    path = named or archive.default_path(output)
    archive.write(output, path)
    print(f'archive: {path}')
  passed = True
  if _RUN_CHECKER.value:
    passed = _check(submission, output)
  if _GIT_BRANCH.value and passed:
    repository = _path(_REPO.value)
    assert repository is not None
    message = _COMMIT_MESSAGE.value or (
      f'{submission.submitter}: {submission.system_name},'
      f' {submission.division} {submission.round}'
    )
    push = branch.make(repository, _GIT_BRANCH.value, output, message)
    print(f'branch {_GIT_BRANCH.value} is ready; to push it:\n  {push}')
  if not passed:
    raise SystemExit('submission: the official checker does not accept it')


def _check(submission: plan.Submission, output: pathlib.Path) -> bool:
  assert submission.inference_dir is not None
  verdict = checker.run(
    output,
    submission.inference_dir,
    submission.round,
    submission.submitter,
    _CHECKER_PYTHON.value,
  )
  for line in verdict.complaints:
    print(line)
  print(f'checker ({verdict.version}): SUMMARY: {verdict.summary}')
  return verdict.passed


def _path(typed: str | None) -> pathlib.Path | None:
  resolved = user_path.resolve(typed)
  return pathlib.Path(resolved) if resolved else None


if __name__ == '__main__':
  flags.mark_flags_as_required(['submitter', 'system_name'])
  dashes.run(main)
