"""Reads a stored result from the directory of its job."""

from collections.abc import Callable, Sequence
import dataclasses
import pathlib
from typing import ClassVar

from harness import errors
from harness.benchmarks import all as benchmarks
from harness.benchmarks import benchmark as benchmark_lib
from harness.loadgen import compliance as compliance_lib
from harness.loadgen import loadgen_log
from harness.results import entry as entry_lib
from harness.results import figures

USER_CONF = 'user.conf'
COMPLIANCE = 'compliance'


@dataclasses.dataclass(frozen=True)
class JobResult:
  """The content of a job's directory.

  Attributes:
    directory: The path of the directory.
    entry: The content of result.json.
    accuracy: LoadGen's log of the accuracy run, or None if it was not run.
    performance: LoadGen's log of the performance run, or None if it was not
      run.
    compliance: The logs of the compliance runs, by the name of the test.
    truncated: True if the directory has only the ends of the accuracy logs.
  """

  directory: pathlib.Path
  entry: entry_lib.Entry
  accuracy: loadgen_log.RunLog | None
  performance: loadgen_log.RunLog | None
  compliance: dict[str, loadgen_log.RunLog]
  truncated: ClassVar[bool] = False

  @property
  def name(self) -> str:
    """The name of the result in messages."""
    return f'{self.entry.model} {self.entry.scenario} ({self.directory})'

  @property
  def benchmark(self) -> benchmark_lib.Benchmark:
    """The benchmark of the result."""
    return benchmarks.get(self.entry.benchmark)

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
    """Returns the directory of LoadGen's logs of a compliance run."""
    return self.directory / COMPLIANCE / test

  def scores_dir(self, test: str) -> pathlib.Path:
    """Returns the directory of a test's scores if its answers differ."""
    return self.compliance_dir(test)

  def same_answers(self, test: str) -> bool:
    """Returns True if a test has the same answers as the accuracy run.

    Raises:
      OSError, ValueError: A log cannot be read.
    """
    return compliance_lib.verify_accuracy(
      self.accuracy_dir / loadgen_log.ACCURACY_LOG,
      self.compliance_dir(test) / loadgen_log.ACCURACY_LOG,
    ).passed

  def has_test(self, test: str) -> bool:
    """Returns True if a compliance test was run."""
    return test in self.compliance

  def tokens_verdict(self) -> compliance_lib.Verdict:
    """Returns the verdict of TEST06.

    Raises:
      OSError, ValueError: The log cannot be read, or the result does not record
        the ids that end an answer.
    """
    log = self.compliance_dir(compliance_lib.TEST06) / loadgen_log.ACCURACY_LOG
    end_ids = self.entry.parameters.get('task', {}).get('end_ids')
    if not end_ids:
      raise ValueError(
        f'{self.name} does not record the ids that end an answer. Run it again'
        ' with --mode=accuracy,performance,compliance.'
      )
    return compliance_lib.verify_tokens(log, self.entry.scenario, end_ids)


def load(directory: str) -> JobResult:
  """Reads a job's directory.

  Raises:
    OSError: A file cannot be read.
    ValueError: A file is not a result of the harness, or a log is incomplete.
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
  """Reads results, and collects the errors of unreadable ones.

  Args:
    names: The results that the user named.
    find: The function that returns the directory of a name. It raises OSError
      or ValueError if there is none.

  Returns:
    The results, and the problems of the others.
  """
  results, problems = [], []
  for name in names:
    try:
      results.append(load(find(name)))
    except (OSError, ValueError) as error:
      problems.append(f'{name}: {errors.reason(error)}')
  return results, problems


def log(directory: pathlib.Path) -> loadgen_log.RunLog | None:
  """Reads the logs of a run, or returns None if it was not run.

  Raises:
    OSError, ValueError: A log cannot be read.
  """
  if not (directory / loadgen_log.DETAIL_LOG).is_file():
    return None
  return loadgen_log.read(str(directory))
