"""A stored result: what one job left in its directory."""

from collections.abc import Callable, Sequence
import dataclasses
import pathlib
from typing import ClassVar

from harness import errors
from harness.loadgen import loadgen_log
from harness.results import entry as entry_lib
from harness.results import figures
from harness.submission.content import compliance

USER_CONF = 'user.conf'
COMPLIANCE = 'compliance'


@dataclasses.dataclass(frozen=True)
class JobResult:
  """A job's directory, read.

  Attributes:
    directory: where it lies.
    entry: its result.json.
    accuracy: LoadGen's log of the accuracy run; None if it was not run.
    performance: the same of the performance run.
    compliance: log of its compliance runs by the test's name.
    truncated: whether only the ends of its accuracy logs are there.
  """

  directory: pathlib.Path
  entry: entry_lib.Entry
  accuracy: loadgen_log.RunLog | None
  performance: loadgen_log.RunLog | None
  compliance: dict[str, loadgen_log.RunLog]
  truncated: ClassVar[bool] = False

  @property
  def name(self) -> str:
    """What messages call it."""
    return f'{self.entry.model} {self.entry.scenario} ({self.directory})'

  @property
  def accuracy_dir(self) -> pathlib.Path:
    return self.directory / 'accuracy'

  @property
  def accuracy_text(self) -> pathlib.Path:
    return self.accuracy_dir / figures.ACCURACY_FILE

  @property
  def performance_dir(self) -> pathlib.Path:
    return self.directory / 'performance' / 'run_1'

  @property
  def user_conf(self) -> pathlib.Path:
    return self.directory / USER_CONF

  def compliance_dir(self, test: str) -> pathlib.Path:
    """Where LoadGen's logs of a compliance run lie."""
    return self.directory / COMPLIANCE / test

  def scores_dir(self, test: str) -> pathlib.Path:
    """Where the scores of a compliance run's answers lie, if they differ."""
    return self.compliance_dir(test)

  def same_answers(self, test: str) -> bool:
    """Returns whether a test's answers are those of the accuracy run.

    Raises:
      OSError, ValueError: A log cannot be read.
    """
    return compliance.verify_accuracy(
      self.accuracy_dir / loadgen_log.ACCURACY_LOG,
      self.compliance_dir(test) / loadgen_log.ACCURACY_LOG,
    ).passed


def load(directory: str) -> JobResult:
  """Reads a job's directory.

  Raises:
    OSError: a file cannot be read.
    ValueError: one is no result of the harness, or LoadGen did not end it.
  """
  path = pathlib.Path(directory)
  entry = entry_lib.read(directory)
  tests = path / COMPLIANCE
  return JobResult(
    directory=path,
    entry=entry,
    accuracy=log(path / 'accuracy'),
    performance=log(path / 'performance' / 'run_1'),
    compliance={
      test.name: loadgen_log.read(str(test))
      for test in (sorted(tests.iterdir()) if tests.is_dir() else ())
      if (test / loadgen_log.DETAIL_LOG).is_file()
    },
  )


def load_all(
  names: Sequence[str], find: Callable[[str], str]
) -> tuple[list[JobResult], list[str]]:
  """Reads results, however many of them cannot be read.

  Args:
    names: what the user called them.
    find: name -> directory; raises OSError or ValueError without one.

  Returns:
    The results, and what is wrong with the others.
  """
  results, problems = [], []
  for name in names:
    try:
      results.append(load(find(name)))
    except (OSError, ValueError) as error:
      problems.append(f'{name}: {errors.reason(error)}')
  return results, problems


def log(directory: pathlib.Path) -> loadgen_log.RunLog | None:
  """Reads the logs of a run; None if it was not run.

  Raises:
    OSError, ValueError: A log cannot be read.
  """
  if not (directory / loadgen_log.DETAIL_LOG).is_file():
    return None
  return loadgen_log.read(str(directory))
