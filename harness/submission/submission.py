"""Writes the tree of an MLPerf submission from stored results.

submission --result=results/offline --result=results/server --round=v4.0
  --division=open --category=datacenter --submitter=Example
  --system_name=tpu_v5e_x4 --output=submission

All checks run before any file is written. Exit code 0 means that the tree was
written. With --run_checker, it also means that the official checker accepts it.

submission --check=TREE checks an existing tree.
"""

from collections.abc import Sequence
import pathlib
import re

from absl import app
from absl import flags

from harness import dashes
from harness import errors
from harness.caching import cache as cache_lib
from harness.description import description
from harness.results import job_result
from harness.results import store
from harness.rules import requirements
from harness.rules import rounds
from harness.submission import checker
from harness.submission import endpoints_report
from harness.submission import existing_tree
from harness.submission import git
from harness.submission import plan
from harness.submission import tree
from harness.submission.checks import submission_checks
from harness.submission.content import descriptions
from saxml_ext.common import flag_rules
from saxml_ext.common import user_path

_CHECK = flags.DEFINE_string(
  'check',
  None,
  'Check this existing tree and write nothing. With --result, the tree must'
  ' have the logs of these results.',
)
_RESULT = flags.DEFINE_multi_string(
  'result',
  [],
  'The directory of a job, or the first characters of a result ID. Repeat the'
  ' flag for each model and scenario.',
)
_ENDPOINTS_REPORT = flags.DEFINE_multi_string(
  'endpoints_report',
  [],
  "MODEL/SCENARIO=DIR: a report directory of MLPerf Endpoints' client, such as"
  ' llama3.1-8b/Offline=reports/offline. Repeat the flag for each scenario.',
)
_RESULTS_DIR = flags.DEFINE_string(
  'results_dir',
  None,
  "The directory of results with these IDs. Default: the cache's results.",
)
_OUTPUT = flags.DEFINE_string('output', 'submission', "The tree's directory.")
_ROUND = flags.DEFINE_enum(
  'round', None, list(rounds.ROUNDS), "The round. Default: the results' round."
)
_DIVISION = flags.DEFINE_enum(
  'division', requirements.OPEN, requirements.DIVISIONS, 'The division.'
)
_CATEGORY = flags.DEFINE_enum(
  'category',
  requirements.EDGE,
  requirements.CATEGORIES,
  'The category, which becomes the system type of the description.',
)
_SUBMITTER = flags.DEFINE_string('submitter', None, 'Your organization.')
_SYSTEM_NAME = flags.DEFINE_string(
  'system_name', None, 'The name of the system and its files.'
)
_SYSTEM_DESCRIPTION = flags.DEFINE_string(
  'system_description',
  None,
  'A JSON or YAML file of official keys. Its values replace or complete those'
  ' of the results.',
)
_HW_NOTES_EXTRA = flags.DEFINE_string(
  'hw_notes_extra', '', 'Text to append to hw_notes of the description.'
)
_SW_NOTES_EXTRA = flags.DEFINE_string(
  'sw_notes_extra', '', 'Text to append to sw_notes of the description.'
)
_MODEL_NAME = flags.DEFINE_string(
  'model_name',
  None,
  "Open division: the name of a model that is not the benchmark's."
  " model_mapping.json maps it to the benchmark's model.",
)
_MEASUREMENTS = flags.DEFINE_string(
  'measurements',
  None,
  'A JSON object with values that the results lack, such as weight_data_types.',
)
_CALIBRATION = flags.DEFINE_string(
  'calibration', None, 'A page that describes how the weights were calibrated.'
)
_SYSTEM_DIAGRAM = flags.DEFINE_string(
  'system_diagram',
  None,
  'Network division: a picture or page of the connections between the LoadGen'
  ' node and the nodes of the system.',
)
_CLEAN = flags.DEFINE_bool(
  'clean', False, 'Remove the existing tree in --output.'
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
  'commit_message', None, 'The commit message. Default: a short summary.'
)
_RUN_CHECKER = flags.DEFINE_bool(
  'run_checker', False, 'Run the official checker on the tree.'
)
_INFERENCE_DIR = flags.DEFINE_string(
  'inference_dir', None, 'Your clone of mlcommons/inference.'
)
_CHECKER_PYTHON = flags.DEFINE_string(
  'checker_python', 'python3', 'The Python that runs the official checker.'
)
_CHECKER_REVISION = flags.DEFINE_string(
  'checker_revision',
  None,
  'The branch, tag or commit of --inference_dir with the checker, such as'
  ' origin/master. Default: the tag of the round, or the checked-out files.',
)

flag_rules.act_only(
  'without --check, which writes nothing',
  lambda: _CHECK.value is None,
  'endpoints_report output division category system_name system_description hw_notes_extra'
  ' sw_notes_extra model_name measurements calibration system_diagram clean tar'
  ' git_branch repo commit_message',
)
flag_rules.act_only(
  'with --run_checker',
  lambda: _RUN_CHECKER.value,
  'checker_python checker_revision',
)
flag_rules.act_only(
  'with --run_checker, or without --check',
  lambda: _RUN_CHECKER.value or _CHECK.value is None,
  'inference_dir',
)
flag_rules.act_only(
  'with --git_branch', lambda: _GIT_BRANCH.value, 'repo commit_message'
)
flag_rules.act_only(
  'with --division=network',
  lambda: _DIVISION.value == requirements.NETWORK,
  'system_diagram',
)
flag_rules.act_only(
  'with --result', lambda: _RESULT.value, 'results_dir cache_dir'
)


def main(argv: Sequence[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'unexpected argument {argv[1]!r}')
  with dashes.exit_on(
    'submission', (OSError, ValueError, errors.HarnessError), text=errors.reason
  ):
    if _CHECK.value is None:
      _main()
    else:
      _judge()


def _main() -> None:
  output = _path(_OUTPUT)
  results, problems = job_result.load_all(_RESULT.value, _find)
  reports = [_report(text) for text in _ENDPOINTS_REPORT.value]
  submission = _submission(results, reports)
  problems += _problems_of_flags(output)
  files: plan.Files = {}
  if results or not problems:
    problems += submission_checks.problems(submission)
  if not problems:
    files = plan.files(submission)
    problems = tree.problems(files)
  if problems:
    raise SystemExit(
      f'submission: nothing was written because of {_listed(problems)}'
    )
  tree.write(files, output)
  print(
    f'{submission.division} submission to {submission.round}:'
    f' {len(results) + len(reports)} results, {len(files)} files in {output}'
  )
  _hand_over(submission, output)


def _note(submissions: Sequence[plan.Submission]) -> bool:
  """Prints the notes of submissions, and returns True if there are any."""
  notes = [
    note for item in submissions for note in submission_checks.notes(item)
  ]
  for note in notes:
    print(f'note: {note}')
  return bool(notes)


def _judge() -> None:
  """Checks the tree of --check.

  Raises:
    SystemExit: The tree has problems.
  """
  root = _path(_CHECK)
  jobs, problems = job_result.load_all(_RESULT.value, _find)
  problems += _problems_of_checker()
  submissions, unread = existing_tree.read(root, _ROUND.value, _SUBMITTER.value)
  problems += unread
  for submission in submissions:
    problems += existing_tree.problems(root, submission, jobs)
  if problems:
    print(f'{root}: {_listed(problems)}')
  short = _note(submissions)
  judged = {(s.submitter, s.round) for s in submissions}
  accepted = True
  if _RUN_CHECKER.value and _INFERENCE_DIR.value:
    for submitter, round_name in sorted(judged):
      accepted &= _check(root, submitter, round_name, short)
  if problems or not accepted:
    raise SystemExit(
      f'submission: {root} breaks rules. Fix the problems above, and run the'
      ' check again.'
    )
  count = sum(len(s.results) + len(s.reports) for s in submissions)
  print(f'{root}: {count} results follow all rules that can be checked')


def _listed(problems: Sequence[str]) -> str:
  listed = '\n'.join(f'  * {problem}' for problem in problems)
  return f'{len(problems)} problems:\n{listed}'


def _find(name: str) -> str:
  """Returns the directory of a result; see `store.find_job`."""
  where = user_path.resolve(_RESULTS_DIR.value) or cache_lib.get().results
  return store.find_job(name, where)


def _report(text: str) -> endpoints_report.Report:
  """Reads a report that --endpoints_report names.

  Raises:
    OSError, ValueError: The text or a file of the report is malformed.
  """
  match = re.fullmatch(r'([^/=]+)/([^/=]+)=(.+)', text)
  if match is None:
    raise ValueError(
      f'--endpoints_report={text} is not MODEL/SCENARIO=DIR, such as'
      ' llama3.1-8b/Offline=reports/offline.'
    )
  directory = pathlib.Path(user_path.resolve(match[3]))
  return endpoints_report.read(match[1], match[2], directory)


def _submission(
  results: Sequence[job_result.JobResult],
  reports: Sequence[endpoints_report.Report],
) -> plan.Submission:
  round_name = _ROUND.value or (
    results[0].entry.round if results else rounds.LATEST
  )
  return plan.Submission(
    round=round_name,
    division=_DIVISION.value,
    category=_CATEGORY.value,
    submitter=_SUBMITTER.value,
    system_name=_SYSTEM_NAME.value,
    description=description.read_file(str(_path(_SYSTEM_DESCRIPTION)))
    if _SYSTEM_DESCRIPTION.value
    else {},
    notes={
      'hw_notes': _HW_NOTES_EXTRA.value,
      'sw_notes': _SW_NOTES_EXTRA.value,
    },
    results=tuple(results),
    model_name=_MODEL_NAME.value,
    measurements=descriptions.read_measurements(_path(_MEASUREMENTS))
    if _MEASUREMENTS.value
    else {},
    calibration=_given_path(_CALIBRATION),
    diagram=_given_path(_SYSTEM_DIAGRAM),
    inference_dir=_given_path(_INFERENCE_DIR),
    reports=tuple(reports),
  )


def _problems_of_flags(output: pathlib.Path) -> list[str]:
  """Returns problems that would otherwise appear after the tree is written."""
  texts = _problems_of_checker()
  if reason := tree.may_write(output, _CLEAN.value):
    texts.append(reason)
  if _GIT_BRANCH.value and not _REPO.value:
    texts.append('--git_branch needs --repo, a clone on this machine.')
  elif _GIT_BRANCH.value:
    if reason := git.branch_problem(_path(_REPO), _GIT_BRANCH.value):
      texts.append(reason)
  return texts


def _problems_of_checker() -> list[str]:
  """Returns the missing requirements of the official checker."""
  if not _RUN_CHECKER.value or _INFERENCE_DIR.value:
    return []
  how = checker.how_to_get(_ROUND.value or 'the round')
  return [f'--run_checker needs --inference_dir. {how}']


def _hand_over(submission: plan.Submission, output: pathlib.Path) -> None:
  """Writes the archive, runs the checker and creates the branch on request."""
  if _TAR.value and _TAR.value != 'false':
    named = _TAR.value != 'true'
    path = _path(_TAR) if named else tree.default_archive(output)
    tree.archive(output, path)
    print(f'archive: {path}')
  passed, short = True, _note([submission])
  if _RUN_CHECKER.value:
    passed = _check(output, submission.submitter, submission.round, short)
  if _GIT_BRANCH.value and passed:
    message = _COMMIT_MESSAGE.value or (
      f'{submission.submitter}: {submission.system_name},'
      f' {submission.division} {submission.round}'
    )
    push = git.make_branch(_path(_REPO), _GIT_BRANCH.value, output, message)
    print(f'branch {_GIT_BRANCH.value} is ready. To push it:\n  {push}')
  if not passed:
    raise SystemExit(
      f'submission: The official checker rejected {output}. Fix what its messages'
      ' above name, and write the tree again.'
    )


def _check(
  output: pathlib.Path, submitter: str, round_name: str, short: bool
) -> bool:
  """Runs the official checker on a tree, and prints its output."""
  verdict = checker.run(
    output,
    _path(_INFERENCE_DIR),
    round_name,
    submitter,
    _CHECKER_PYTHON.value,
    _CHECKER_REVISION.value,
    short,
  )
  for line in verdict.complaints:
    print(line)
  option = f' {requirements.SKIP_SET_SIZE}' if short else ''
  print(f'checker ({verdict.version}{option}): SUMMARY: {verdict.summary}')
  return verdict.passed


def _path(flag: flags.FlagHolder) -> pathlib.Path:
  """Returns the path in a flag."""
  return pathlib.Path(user_path.resolve(flag.value))


def _given_path(flag: flags.FlagHolder) -> pathlib.Path | None:
  return _path(flag) if flag.value else None


if __name__ == '__main__':
  flags.register_multi_flags_validator(
    [_CHECK, _SUBMITTER, _SYSTEM_NAME],
    lambda values: (
      values['check'] or (values['submitter'] and values['system_name'])
    ),
    'Pass --submitter and --system_name, or --check=TREE.',
  )
  dashes.run(main)
