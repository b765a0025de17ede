"""Defines the outcome of a job, and writes its report and its result.

Each job has a directory of its own for them.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
import contextlib
import dataclasses
import os
from typing import Any

from harness.description import description
from harness.description import host
from harness.loadgen import compliance
from harness.loadgen import loadgen_log
from harness.loadgen import run as run_lib
from harness.results import entry as entry_lib
from harness.results import figures
from harness.results import scoring
from harness.results import store as store_lib
from harness.rules import rounds
from harness.scenarios import job as job_lib
from harness.scenarios import session
from saxml_ext.common.pages import text_columns

REPORT = 'report.md'
_LOCK = '.lock'
# The keys of an entry's notes: the reasons why the job did not pass, and the
# trials of a search.
PROBLEMS = 'problems'
PROBES = 'probes'
# The key of a cell's report that holds the hosts of each replica that is a
# group, in the order of their process ids. A host with two processes is listed
# twice.
GROUPS = 'groups'

_NODES = 'number_of_nodes'
_NOTES = 'sw_notes'


@dataclasses.dataclass(frozen=True)
class Outcome:
  """The results of a scenario's runs; None for runs that did not take place.

  Attributes:
    judgement: The judgement of the accuracy run.
    accuracy_seconds: The duration of that run.
    performance: The logs of the performance run.
    limits: The bounds on the latencies of tokens; None: there are none.
    judged: True if LoadGen's verdict counts. A run of the execution mode test
      is too short for a verdict.
    energy: The energy in joules during the performance run, by meter.
    served: The cell's report of its settings; see launch.Started.
    probes: The trials of the search, one line each.
    tests: The verdicts on compliance tests that were run, by name. Tests that
      are compared with submitted results have none.
  """

  judgement: scoring.Judgement | None = None
  accuracy_seconds: float = 0.0
  performance: loadgen_log.RunLog | None = None
  limits: rounds.TokenLimits | None = None
  judged: bool = True
  energy: Mapping[str, float] = dataclasses.field(default_factory=dict)
  served: Mapping[str, object] = dataclasses.field(default_factory=dict)
  probes: Sequence[str] = ()
  tests: Mapping[str, compliance.Verdict] = dataclasses.field(
    default_factory=dict
  )

  def problems(self) -> list[str]:
    """Returns the reasons why the job did not pass; empty if it passed."""
    problems = self.judgement.problems() if self.judgement else []
    problems += [
      f'{name} failed. {", ".join(verdict.text.splitlines())}'
      for name, verdict in self.tests.items()
      if not verdict.passed
    ]
    if not (self.performance and self.judged):
      return problems
    if self.performance.problems:
      problems.append(
        f'LoadGen logged {len(self.performance.problems)} errors in the'
        f' performance run. The first one is: {self.performance.problems[0]}'
        f' (all in {self.performance.directory})'
      )
    elif not self.performance.valid:
      problems.append(
        'LoadGen reports the performance run as'
        f' {self.performance.values.get("result_validity")}. Its summary has'
        ' the reason and recommends settings (--target_qps,'
        ' --target_latency_ms, --min_duration, or --mode=find_performance)'
      )
    return problems + figures.over_limits(self.performance, self.limits)

  def report(self) -> str:
    """Returns the report for the screen and for report.md."""
    parts = []
    if self.probes:
      title = 'Search for the highest valid speed'
      parts.append('\n'.join((title, '', *self.probes)))
    if self.performance:
      summary = self.performance.summary.rstrip()
      parts.append(f'{summary}\n\n{_duration(self.performance)}')
      parts.append(_tokens(self.performance, self.limits))
    if self.judgement:
      parts.append(f'Accuracy\n\n{self.judgement.table}')
      parts.append(self.judgement.verdict)
    parts += [f'{k}\n\n{v.text.rstrip()}' for k, v in self.tests.items()]
    parts.append(hosts_text(self.served))
    return '\n\n'.join(filter(None, parts)) + '\n'


def write_report(results_dir: str, scenario: str, text: str) -> str:
  """Writes report.md with the text under a heading, and returns its path."""
  path = os.path.join(results_dir, REPORT)
  with open(path, 'w', encoding='utf-8') as file:
    file.write(f'# MLPerf {scenario}\n\n```\n{text}```\n')
  return path


def _duration(performance: loadgen_log.RunLog) -> str:
  """Returns the duration of the run and the minimum in the rules, as text."""
  official = rounds.MIN_DURATION_MS / 1000
  if performance.seconds >= official:
    return (
      f'This run lasted {performance.seconds:.1f} s; the rules require at'
      f' least {official:.0f} s.'
    )
  return (
    f'This run lasted {performance.seconds:.1f} s, but the rules require at'
    f' least {official:.0f} s.\nLoadGen judged it by its own min_duration, so'
    f' it is not an official result.\n--min_duration={rounds.MIN_DURATION_MS}'
    ' runs long enough.'
  )


def _tokens(
  performance: loadgen_log.RunLog, limits: rounds.TokenLimits | None
) -> str:
  """Returns the figures of tokens, with the verdict on the bounds, or ''."""
  rate = figures.logged_tokens_per_second(performance)
  if rate is None:
    return ''
  latencies = figures.token_latencies(performance, limits)
  rows = [('Tokens', 'p99', 'mean', 'limit of p99', '')] if latencies else []
  rows += [
    (
      f'{latency.name} ({latency.abbreviation})',
      f'{latency.bounded_ms:.3f} ms',
      f'{latency.mean_ns / 1e6:.3f} ms',
      'none' if latency.limit_ms is None else f'{latency.limit_ms:g} ms',
      ''
      if latency.limit_ms is None
      else 'FAILED'
      if latency.problem
      else 'PASSED',
    )
    for latency in latencies
  ]
  table = f'{text_columns.render(rows)}\n' if rows else ''
  return f'{table}{rate:.2f} tokens/s, by LoadGen'


def hosts_text(served: Mapping[str, Any]) -> str:
  """Returns the groups as a sentence, or '' if there are none.

  Args:
    served: The cell's report about the model that it serves.
  """
  groups: Sequence[Sequence[str]] = served.get(GROUPS) or ()
  if not groups:
    return ''
  which = ', and by '.join(_group_text(hosts) for hosts in groups)
  return f'The model was computed by {which}.'


def describe_hosts(
  system: Mapping[str, Any], given: Collection[str], served: Mapping[str, Any]
) -> dict[str, Any]:
  """Returns the system description with the number of machines in all groups.

  Several processes on one machine count as one node, because the other figures
  of the description also refer to one machine. A note lists the processes.

  Args:
    system: The official description of the system, without the groups.
    given: The keys that the user has set. They are not changed.
    served: The cell's report about the model that it serves.
  """
  described = dict(system)
  names = {name for hosts in served.get(GROUPS) or () for name in hosts}
  if names and _NODES not in given:
    described[_NODES] = str(len(names))
  note = hosts_text(served)
  if note and _NOTES not in given:
    before = described.get(_NOTES)
    described[_NOTES] = f'{before}. {note}' if before else note
  return described


def _group_text(hosts: Sequence[str]) -> str:
  machines, where = len(set(hosts)), ''
  if machines < len(hosts):
    where = ' on one machine' if machines == 1 else f' on {machines} machines'
  return f'a group of {len(hosts)} hosts{where} ({", ".join(hosts)})'


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
      store_lib.Busy: Another job uses a directory.
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
    with store_lib.hold_lock(os.path.join(directory, _LOCK), directory):
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
    self._hashes = entry_lib.hashes(
      dict(job.system.inputs) | dict(job.task.inputs)
    )
    self._versions = host.versions()
    overrides = dict(job.system_description)
    if job.system.framework:
      framework = host.framework(self._versions, job.system.framework)
      overrides = {'framework': framework} | overrides
    self._description = description.describe(job.system_preset, overrides)
    self._governor = host.governor()
    self._began = entry_lib.now()

  def entry(self, job: job_lib.Job, outcome: Outcome) -> entry_lib.Entry:
    """Returns the entry of a scenario that has just ended.

    Raises:
      OSError, ValueError: The logs cannot be read.
    """
    began, self._began = self._began, entry_lib.now()
    return entry_lib.Entry(
      benchmark=job.task.benchmark.name,
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
      description=describe_hosts(
        self._description, job.system_description, outcome.served
      ),
      governor=self._governor,
      accuracy=_accuracy(outcome),
      performance=_performance(job, outcome),
      energy=outcome.energy,
      notes={
        PROBLEMS: outcome.problems(),
        PROBES: list(outcome.probes),
        entry_lib.SERVED: dict(outcome.served),
      },
    )


def _accuracy(outcome: Outcome) -> entry_lib.Accuracy | None:
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
  job: job_lib.Job, outcome: Outcome
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
