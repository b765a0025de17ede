"""Creates the directories of jobs, and the entries of their results."""

from collections.abc import Iterator, Mapping, Sequence
import contextlib
import dataclasses
import os

from harness.description import description
from harness.loadgen import run as run_lib
from harness.results import entry as entry_lib
from harness.results import figures
from harness.results import locks
from harness.results import nodes
from harness.results import store as store_lib
from harness.scenarios import job as job_lib
from harness.scenarios import outcome as outcome_lib
from harness.scenarios import session

_LOCK = '.lock'
# The keys of an entry's notes: the reasons why the job did not pass, and the
# trials of a search.
PROBLEMS = 'problems'
PROBES = 'probes'


@dataclasses.dataclass(frozen=True)
class Directories:
  """The directories that jobs write to.

  Attributes:
    store: The store of results, for jobs without their own directory.
    results_dir: The directory that the user chose; None: the store.
    several: True if there are several jobs. Each then gets a directory below
      `results_dir`.
  """

  store: store_lib.Store
  results_dir: str | None
  several: bool

  def stored(self, job: job_lib.Job) -> store_lib.Stored | None:
    """Returns the stored result of a job with the same parameters, or None.

    Raises:
      OSError, ValueError: The stored result cannot be read.
    """
    if self.results_dir is None:
      return self.store.find(job.id)
    directory = self._directory(job)
    try:
      entry = entry_lib.read(directory)
    except FileNotFoundError:
      return None
    if entry.id != job.id:
      return None
    return store_lib.Stored(entry, directory)

  @contextlib.contextmanager
  def begin(self, jobs: Sequence[job_lib.Job]) -> Iterator[list[job_lib.Job]]:
    """Creates the jobs' directories and locks them against other jobs.

    Yields:
      The same jobs, each with its results_dir.

    Raises:
      locks.Busy: Another job uses a directory.
      OSError: A directory cannot be created.
    """
    with contextlib.ExitStack() as stack:
      yield [
        dataclasses.replace(
          job, results_dir=stack.enter_context(self._begin_one(job))
        )
        for job in jobs
      ]

  @contextlib.contextmanager
  def _begin_one(self, job: job_lib.Job) -> Iterator[str]:
    if self.results_dir is None:
      name = f'{job.model}-{job.load.scenario}-{job.system.kind}'
      with self.store.begin(job.id, name.lower()) as directory:
        yield directory
      return
    directory = self._directory(job)
    os.makedirs(directory, exist_ok=True)
    with locks.held(os.path.join(directory, _LOCK), directory):
      # An existing entry may belong to another job, so it is removed.
      with contextlib.suppress(FileNotFoundError):
        os.remove(os.path.join(directory, entry_lib.FILE))
      yield directory

  def _directory(self, job: job_lib.Job) -> str:
    assert self.results_dir is not None
    if self.several:
      return os.path.join(self.results_dir, job.load.scenario)
    return self.results_dir


class Recorder:
  """Creates the entries of the jobs of one session."""

  def __init__(self, job: job_lib.Job):
    """Reads the state of this machine and the inputs of the jobs.

    Args:
      job: The first of the jobs.

    Raises:
      OSError: An input cannot be read.
      ValueError: The user's description of the system has an impossible value.
    """
    self._hashes = _hashes(dict(job.system.inputs) | dict(job.task.inputs))
    overrides = dict(job.system_description)
    if job.system.framework:
      framework = description.framework(job.system.framework)
      overrides = {'framework': framework} | overrides
    self._description = description.describe(job.system_preset, overrides)
    self._versions = description.versions()
    self._governor = description.governor()
    self._began = entry_lib.now()

  def entry(
    self, job: job_lib.Job, outcome: outcome_lib.Outcome
  ) -> entry_lib.Entry:
    """Returns the entry of a scenario that has just ended.

    Raises:
      OSError, ValueError: The logs cannot be read.
    """
    began, self._began = self._began, entry_lib.now()
    return entry_lib.Entry(
      benchmark=job.task.benchmark,
      model=job.model,
      scenario=job.load.scenario,
      round=job.load.round,
      system=job.system.kind,
      parameters=job.parameters,
      command=job.command,
      began=began,
      ended=entry_lib.now(),
      versions=self._versions,
      hashes=self._hashes,
      description=nodes.described(
        self._description, job.system_description, outcome.served
      ),
      governor=self._governor,
      accuracy=_accuracy(outcome),
      performance=_performance(job, outcome),
      energy=outcome.energy,
      notes={
        PROBLEMS: outcome.problems(),
        PROBES: [str(probe) for probe in outcome.probes],
        entry_lib.SERVED: dict(outcome.served),
      },
    )


def _accuracy(outcome: outcome_lib.Outcome) -> entry_lib.Accuracy | None:
  judgement = outcome.judgement
  if judgement is None:
    return None
  return entry_lib.Accuracy(
    metrics=judgement.metrics,
    line=judgement.line,
    reference=judgement.reference_metrics,
    identical=judgement.identical,
    passed=judgement.passed,
    seconds=outcome.accuracy_seconds,
  )


def _performance(
  job: job_lib.Job, outcome: outcome_lib.Outcome
) -> entry_lib.Performance | None:
  if outcome.performance is None:
    return None
  return figures.performance(
    outcome.performance.directory,
    job.load.scenario,
    os.path.join(
      job.results_dir, session.TIMELINES, f'{run_lib.PERFORMANCE}.csv'
    ),
  )


def _hashes(inputs: Mapping[str, str]) -> dict[str, str]:
  """Returns the SHA-256 of the inputs on this machine, by role."""
  return {
    role: (
      description.tree_sha256(path)
      if os.path.isdir(path)
      else description.file_sha256(path)
    )
    for role, path in inputs.items()
    if os.path.exists(path)
  }
