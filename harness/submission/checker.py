"""Runs the official submission checker from the user's mlcommons/inference.

Each round has its own checker. If the user's clone has the tag of the round,
the checker is extracted from that tag. Otherwise the checked-out checker runs,
if it supports the round.
"""

from collections.abc import Iterator, Sequence
import dataclasses
import os
import pathlib
import re
import subprocess
import tempfile

from harness import errors
from harness.rules import requirements
from harness.submission import git

REPOSITORY = 'https://github.com/mlcommons/inference'

_FOLDER = 'tools/submission'
_SCRIPT = 'submission_checker.py'
_PACKAGE = 'submission_checker/main.py'
# Files that contain the options and the names of the rounds of a checker.
_TABLES = (_SCRIPT, _PACKAGE, 'submission_checker/constants.py')
_SKIP = requirements.SKIP_SET_SIZE
_VERDICT = 'SUMMARY: '
_OK = 'submission looks OK'


class CheckerError(errors.HarnessError):
  """The checker could not run."""


@dataclasses.dataclass(frozen=True)
class Verdict:
  """The outcome of a checker run.

  Attributes:
    summary: The final message, "submission looks OK" or "submission has
      errors".
    output: The whole output.
    version: A description of the checker's version.
  """

  summary: str
  output: str
  version: str

  @property
  def passed(self) -> bool:
    return self.summary == _OK

  @property
  def complaints(self) -> list[str]:
    """The lines of the output that report errors."""
    return [line for line in self.output.splitlines() if ' ERROR] ' in line]


def how_to_get(round_name: str) -> str:
  """Returns instructions for getting a checkout with a round's checker."""
  return (
    f'Run "git clone --filter=blob:none {REPOSITORY}" and pass the clone as'
    f' --inference_dir. Its tags contain the checker of {round_name}. Or pass'
    ' --inference_dir=$(./bazelw run //third_party/mlperf:inference).'
  )


def run(
  tree: pathlib.Path,
  inference_dir: pathlib.Path,
  round_name: str,
  submitter: str,
  python: str,
  revision: str | None = None,
  short_set: bool = False,
) -> Verdict:
  """Checks a tree with the checker of the round.

  Args:
    tree: The submission.
    inference_dir: The checkout of mlcommons/inference.
    round_name: The round, such as "v4.0".
    submitter: The submitter whose results are checked.
    python: The Python that runs the checker. Checkers since v6.0 need pandas.
    revision: The branch, tag or commit that has the checker. None selects the
      tag of the round, or the checked-out files if there is no such tag.
    short_set: True if an accuracy run covers only a part of the set, which the
      checker must be told to accept.

  Raises:
    CheckerError: There is no checker for the round, or it fails, or it has no
      option to accept a part of the set.
  """
  with tempfile.TemporaryDirectory(prefix='checker_') as scratch:
    folder, version = _find(
      inference_dir, round_name, pathlib.Path(scratch), revision
    )
    summary_csv = os.path.join(scratch, 'summary.csv')
    if short_set and not any(_SKIP in text for text in _texts(folder)):
      raise CheckerError(
        f'The checker of {version} has no {_SKIP}, but an accuracy run covers'
        ' only a part of the set. Run it on the whole set, or pass a'
        ' --checker_revision that has the option, such as origin/master.'
      )
    options = [_SKIP] if short_set else []
    output = _judge(
      *(folder, python, tree, round_name, submitter, summary_csv, options)
    )
  for line in reversed(output.splitlines()):
    _, verdict, summary = line.partition(_VERDICT)
    if verdict:
      return Verdict(summary.strip(), output, version)
  remedy = ''
  if 'ModuleNotFoundError' in output:
    remedy = (
      f' It needs packages. Run {python} -m pip install pandas pyyaml, or pass'
      ' another Python as --checker_python.'
    )
  last = output.strip().rpartition('\n')[2]
  raise CheckerError(
    f'The checker of {version} ended without a verdict. Its last line was'
    f' {last!r}.{remedy}'
  )


def _find(
  inference_dir: pathlib.Path,
  round_name: str,
  scratch: pathlib.Path,
  revision: str | None,
) -> tuple[pathlib.Path, str]:
  """Returns the folder of the round's checker, and its version as text."""
  if not inference_dir.is_dir():
    raise CheckerError(
      f'--inference_dir={inference_dir} is not a directory.'
      f' {how_to_get(round_name)}'
    )
  archive = scratch / 'checker.tar'
  tag = _newest_tag(inference_dir, round_name)
  taken = git.run(
    *('-C', inference_dir, 'archive', '-o', archive),
    *(revision or tag, _FOLDER),
    encoding='utf-8',
  )
  if taken.returncode == 0:
    subprocess.run(['tar', '-xf', archive, '-C', scratch], check=True)
  if taken.returncode == 0 and not revision:
    return scratch / _FOLDER, f'tag {tag}'
  if revision and taken.returncode:
    raise CheckerError(
      f'--checker_revision={revision} has no {_FOLDER} in {inference_dir}'
      f' ({taken.stderr.strip()}). Fetch it: git -C {inference_dir} fetch'
      f' origin {revision}'
    )
  folder = (scratch if revision else inference_dir) / _FOLDER
  if any(f'"{round_name}"' in text for text in _texts(folder)):
    return folder, revision or f'{inference_dir} as checked out'
  if revision:
    raise CheckerError(
      f'The checker of --checker_revision={revision} does not support'
      f' {round_name}. Omit the flag to run the checker of the tag.'
    )
  raise CheckerError(
    f'{inference_dir} has neither a tag {round_name} nor a checker in'
    f' {_FOLDER} that supports {round_name}. {how_to_get(round_name)}'
  )


def _newest_tag(inference_dir: pathlib.Path, round_name: str) -> str:
  """Returns the last tag of a round, such as v5.1.1 for v5.1.

  The checker of the tag v5.1 refuses every result of Llama.
  """
  listed = git.run(
    '-C', inference_dir, 'tag', '--sort=version:refname', encoding='utf-8'
  )
  # A tag such as v6.0.0pre is not the checker of a round.
  pattern = re.compile(re.escape(round_name) + r'(\.\d+)?')
  return (round_name, *filter(pattern.fullmatch, listed.stdout.split()))[-1]


def _texts(folder: pathlib.Path) -> Iterator[str]:
  """Yields the texts of a checker's tables."""
  for table in _TABLES:
    if (folder / table).is_file():
      yield (folder / table).read_text('utf-8')


def _judge(
  folder: pathlib.Path,
  python: str,
  tree: pathlib.Path,
  round_name: str,
  submitter: str,
  summary_csv: str,
  options: Sequence[str],
) -> str:
  arguments = [f'--input={tree}', f'--version={round_name}']
  arguments += [f'--submitter={submitter}', f'--csv={summary_csv}', *options]
  if (folder / _PACKAGE).is_file():
    program = ['-m', _PACKAGE.removesuffix('.py').replace('/', '.')]
  else:
    program = [_SCRIPT]
  environment = dict(os.environ)
  # Our launchers set these variables for our Python. The checker's Python has
  # its own packages and must find the modules in the checker's folder.
  for variable in ('PYTHONPATH', 'PYTHONSAFEPATH'):
    environment.pop(variable, None)
  environment['PYTHONDONTWRITEBYTECODE'] = '1'
  try:
    done = subprocess.run(
      [python, *program, *arguments],
      cwd=folder,
      env=environment,
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      encoding='utf-8',
    )
  except OSError as error:
    raise CheckerError(
      f'--checker_python={python} cannot be run: {error.strerror}'
    ) from error
  return done.stdout
