"""Where the results of jobs lie, and which are there already."""

from collections.abc import Iterator, Sequence
import contextlib
import dataclasses
import os

from harness.results import entry as entry_lib
from harness.results import locks
from harness.results import result_text
from harness.results import store as store_lib
from harness.scenarios import config as config_lib

_LOCK = '.lock'
# In an entry's notes: why the job did not pass, and what a search tried.
PROBLEMS = 'problems'
PROBES = 'probes'


@dataclasses.dataclass(frozen=True)
class Place:
  """Where jobs write.

  Attributes:
    store: for jobs that nobody gives a place of their own.
    results_dir: that place; None for the store.
    several: whether there is more than one job, so that each gets a directory
      below `results_dir`.
  """

  store: store_lib.Store
  results_dir: str | None
  several: bool

  def stored(self, config: config_lib.JobConfig) -> store_lib.Stored | None:
    """The result of a job of the same parameters, if it is there.

    Raises:
      OSError, ValueError: there is one that cannot be read.
    """
    if self.results_dir is None:
      return self.store.find(config.id)
    directory = self._directory(config)
    try:
      entry = entry_lib.read(directory)
    except FileNotFoundError:
      return None
    if entry.id != config.id:
      return None
    return store_lib.Stored(entry, directory)

  @contextlib.contextmanager
  def begin(
    self, configs: Sequence[config_lib.JobConfig]
  ) -> Iterator[list[config_lib.JobConfig]]:
    """Makes the jobs' directories, and keeps other jobs from them.

    Yields:
      The same jobs, each with its results_dir.

    Raises:
      locks.Busy: another job is at work there.
      OSError: a directory cannot be made.
    """
    with contextlib.ExitStack() as stack:
      yield [
        dataclasses.replace(
          config, results_dir=stack.enter_context(self._begin_one(config))
        )
        for config in configs
      ]

  @contextlib.contextmanager
  def _begin_one(self, config: config_lib.JobConfig) -> Iterator[str]:
    if self.results_dir is None:
      name = f'{config.model}-{config.load.scenario}-{config.system.kind}'
      with self.store.begin(config.id, name.lower()) as directory:
        yield directory
      return
    directory = self._directory(config)
    os.makedirs(directory, exist_ok=True)
    with locks.held(os.path.join(directory, _LOCK), directory):
      # What is there may be of another job; it is no result of this one.
      with contextlib.suppress(FileNotFoundError):
        os.remove(os.path.join(directory, entry_lib.FILE))
      yield directory

  def _directory(self, config: config_lib.JobConfig) -> str:
    assert self.results_dir is not None
    if self.several:
      return os.path.join(self.results_dir, config.load.scenario)
    return self.results_dir


def problems(entry: entry_lib.Entry) -> list[str]:
  """Why the job of an entry did not pass; empty if it did."""
  return list(entry.notes.get(PROBLEMS, ()))


def report_text(stored: store_lib.Stored) -> str:
  """The report that the user saw when the result was made.

  Raises:
    OSError: it cannot be read.
  """
  path = os.path.join(stored.directory, result_text.FILE)
  with open(path, encoding='utf-8') as file:
    return file.read()
