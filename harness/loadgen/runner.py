"""Runs LoadGen once, in this process, against a system.

A process can run LoadGen only once. LoadGen applies its own defaults of a
benchmark only to the first settings of a process, so a second run would
silently lose the seeds. The harness starts a program for each run and reads
status lines from its output. The path of a run.json is the only argument. A
user may also start the program, with flags instead. The program ends with exit
code 1 as soon as an answer fails.
"""

from collections.abc import Callable, Iterator, Sequence
import contextlib
import dataclasses
import json
import os
import threading
from typing import Any, NoReturn, TypeVar

from absl import app
from absl import flags
import mlperf_loadgen

from harness import errors
from harness.benchmarks import all as benchmarks
from harness.loadgen import loadgen_log
from harness.loadgen import run as run_lib
from harness.loadgen import settings
from harness.loadgen import sut as sut_lib
from harness.loadgen import system as system_lib
from harness.loadgen import user_conf
from harness.rules import rounds

_S = TypeVar('_S')

_TEST_MODES = {
  run_lib.ACCURACY: mlperf_loadgen.TestMode.AccuracyOnly,
  run_lib.PERFORMANCE: mlperf_loadgen.TestMode.PerformanceOnly,
}

flags.DEFINE_enum(
  'benchmark',
  benchmarks.DEFAULT.name,
  list(benchmarks.BENCHMARKS),
  "LoadGen's benchmark.",
)
flags.DEFINE_enum(
  'scenario', rounds.OFFLINE, list(rounds.SCENARIOS), 'LoadGen scenario.'
)
flags.DEFINE_string('user_conf', None, "LoadGen's user.conf.")
_ATTRIBUTES = flags.DEFINE_string(
  'loadgen_attributes',
  '{}',
  'The fields of TestSettings that user.conf cannot set, as a JSON object.',
)
flags.DEFINE_string(
  'audit_conf',
  '',
  "The path of a compliance test's audit.config; empty: no test.",
)
flags.DEFINE_string('output_dir', None, "The directory for LoadGen's logs.")
flags.DEFINE_string(
  'timeline', None, 'The path of a CSV file for the times of every sample.'
)

_REQUIRED = ('mode', 'user_conf', 'output_dir', 'concurrency', 'silence_secs')

_STATUS_INTERVAL_SECS = 0.5

# A run is not abandoned before this time without a first answer, because a
# model may have to compile its programs first.
_FIRST_ANSWER_SECS = 300.0


@dataclasses.dataclass(frozen=True)
class Subject:
  """The system and the samples of a program's run.

  Attributes:
    system: The system that answers the samples.
    sizes: The length of each sample of the set by index, such as the tokens of
      the prompt. See `system.copies_longest_first`.
    network_name: A function that requests the name of a system on other nodes
      over the network; None for a system on this node. With it, LoadGen runs
      over the network. Samples are then only dispatched, in LoadGen's own
      order.
  """

  system: system_lib.System
  sizes: Sequence[int]
  network_name: Callable[[], str] | None = None


def requested_run(
  argv: Sequence[str] = (), kind: type[_S] | Any = None, **system: Any
) -> run_lib.Run[_S]:
  """Returns the run that the command line describes.

  Args:
    argv: The name of the program, and the path of a run.json if there is one.
    kind: The type of the system; None if the program has only one.
    **system: The fields of the system that no flag decides. Without a run.json,
      the flags decide the others.

  Raises:
    app.UsageError: The command line has other arguments.
  """
  if len(argv) > 2:
    raise app.UsageError(f'unexpected argument {argv[2]!r}')
  if len(argv) == 2:
    try:
      return run_lib.read(argv[1], kind)
    except (OSError, ValueError) as error:
      _give_up(errors.reason(error), None)
  mode = run_lib.MODE
  try:
    return run_lib.fill(
      run_lib.Run,
      mode=','.join(mode.value) if mode.present else None,
      system=run_lib.fill(kind, **system) if kind else None,
      samples=run_lib.fill(run_lib.Samples),
      loadgen_attributes=json.loads(_ATTRIBUTES.value),
    )
  except ValueError as error:
    raise app.UsageError(str(error)) from error


def main(
  make: Callable[[], Subject], run: run_lib.Run[Any] | None = None
) -> None:
  """Runs LoadGen to its end; ends the process with exit code 1 if that fails.

  Args:
    make: The function that makes the system. Its OSError and ValueError are
      reported to the harness.
    run: The run that `requested_run` returned; None: the run that the flags describe.
  """
  run = run or requested_run()
  for name in _REQUIRED:
    if getattr(run, name) is None:
      raise app.UsageError(f'flag --{name} must be given')
  if run.mode not in run_lib.MODES:
    raise app.UsageError(
      f'--mode={run.mode} is not one run. Give accuracy or performance'
    )
  try:
    bursts = system_lib.parse_bursts(run.warm_up)
    user_conf.read(run.user_conf, benchmarks.get(run.benchmark), run.scenario)
    subject = make()
  except (OSError, ValueError) as error:
    _give_up(str(error), None)
  count = len(subject.sizes)
  try:
    with _reported_warm_up(sum(bursts), run.warm_up_rest_secs) as on_answer:
      system_lib.warm_up(
        subject.system,
        count,
        bursts,
        run.warm_up_rest_secs,
        run.silence_secs,
        max(run.silence_secs, _FIRST_ANSWER_SECS),
        on_answer,
      )
  except system_lib.WarmUpError as error:
    _give_up(str(error), None)
  _Process(run, subject).run()


@contextlib.contextmanager
def _reported_warm_up(
  samples: int, rest_secs: float
) -> Iterator[Callable[[], None]]:
  """Reports the progress of a warm-up during the `with` block.

  Args:
    samples: The number of samples of all bursts.
    rest_secs: The pause after the last burst, in seconds.

  Yields:
    A function to call after each answer.
  """
  ended = threading.Event()
  done = 0

  def on_answer() -> None:
    nonlocal done
    done += 1

  def watch() -> None:
    while samples and not ended.wait(_STATUS_INTERVAL_SECS):
      phase = 'warm-up'
      if done == samples:
        phase = f'pause of {rest_secs:g} s after the warm-up'
      run_lib.send(run_lib.RunStatus(samples, done, warm_up=phase))

  thread = threading.Thread(target=watch, daemon=True)
  thread.start()
  try:
    yield on_answer
  finally:
    # The thread must not send a status after those of the run.
    ended.set()
    thread.join()


class _Process:
  """The run of this process."""

  def __init__(self, run: run_lib.Run[Any], subject: Subject):
    self._spec = run
    self._benchmark = benchmarks.get(run.benchmark)
    self._subject = subject
    self._count = count = len(subject.sizes)
    self._buffer_count = min(run.buffer_count or count, count)
    self._sut = sut_lib.SystemUnderTest(
      subject.system,
      # The rules leave sorting to the nodes of a system over the network.
      [0] * count if subject.network_name else subject.sizes,
      # An accuracy run makes one pass over the whole set.
      count if run.mode == run_lib.ACCURACY else self._buffer_count,
      run.concurrency,
      settings.reports_first_tokens(self._benchmark, run.scenario),
    )

  def run(self) -> None:
    ended = threading.Event()
    watch = threading.Thread(target=self._watch, args=(ended,), daemon=True)
    watch.start()
    self._loadgen()
    # The watching thread must not send a status after the last one.
    ended.set()
    watch.join()
    self._subject.system.close()
    counts = self._sut.counts()
    try:
      self._write_timeline()
    except OSError as error:
      _give_up(f'the times of samples cannot be written: {error}', counts)
    run_lib.send(
      run_lib.RunStatus(counts.issued, counts.done, counts.seconds, True)
    )

  def _loadgen(self) -> None:
    """Runs LoadGen to its end; blocks."""
    run, sut = self._spec, self._sut
    test = settings.load(
      run.user_conf, self._benchmark, run.scenario, run.loadgen_attributes
    )
    test.mode = _TEST_MODES[run.mode]
    log = mlperf_loadgen.LogSettings()
    log.enable_trace = False
    output = mlperf_loadgen.LogOutputSettings()
    output.outdir = run.output_dir
    output.copy_summary_to_stdout = False
    log.log_output = output
    # All samples are in memory before the run, so there is nothing to load.
    library = mlperf_loadgen.ConstructQSL(
      self._count,
      self._buffer_count,
      lambda indices: None,
      lambda indices: None,
    )
    if self._subject.network_name is None:
      handle = mlperf_loadgen.ConstructSUT(sut.issue, sut.flush)
      destroy = mlperf_loadgen.DestroySUT
    else:
      handle = mlperf_loadgen.ConstructQDL(
        sut.issue, sut.flush, self._network_name
      )
      destroy = mlperf_loadgen.DestroyQDL
    # The path is explicit, so that an audit.config in the user's directory does
    # not change the run.
    mlperf_loadgen.StartTestWithLogSettings(
      handle, library, test, log, run.audit_conf
    )
    destroy(handle)
    mlperf_loadgen.DestroyQSL(library)

  def _network_name(self) -> str:
    """Returns the name of the system for LoadGen's log."""
    assert self._subject.network_name
    try:
      return self._subject.network_name()
    except Exception as error:  # LoadGen aborts if a callback raises.
      _give_up(f'the Network SUT did not report its name: {error}', None)

  def _watch(self, ended: threading.Event) -> None:
    """Reports progress, and ends the process when the run cannot continue."""
    while not ended.wait(_STATUS_INTERVAL_SECS):
      counts = self._sut.counts()
      if reason := self._sut.failure or silence(
        counts, self._spec.silence_secs
      ):
        self._abandon(reason)
      run_lib.send(
        run_lib.RunStatus(counts.issued, counts.done, counts.seconds)
      )

  def _abandon(self, reason: str) -> NoReturn:
    """Abandons the run and keeps the times of answered samples."""
    try:
      self._write_timeline()
    except OSError as error:
      reason += f'. The times of answered samples cannot be written: {error}'
    _give_up(reason, self._sut.counts())

  def _write_timeline(self) -> None:
    if self._spec.timeline:
      loadgen_log.write_timeline(self._spec.timeline, self._sut.timeline)


def silence(counts: sut_lib.Counts, limit_secs: float) -> str | None:
  """Returns the reason to abandon a run that has no answers, or None.

  Args:
    counts: The counts of samples so far.
    limit_secs: The longest time without any answer, after the first one.
  """
  waited = counts.silence_secs
  if counts.issued == counts.done or waited <= limit_secs:
    return None
  in_flight = f'with {counts.in_flight} requests in flight'
  if counts.done:
    return (
      f'no answer for {waited:.0f} s (limit {limit_secs:.0f} s) {in_flight}'
      f' and {counts.done} of {counts.issued} answered. The model server is'
      ' gone or too slow. Check its log, or raise --silence_secs'
    )
  limit_secs = max(limit_secs, _FIRST_ANSWER_SECS)
  if waited <= limit_secs:
    return None
  return (
    f'no answer at all within {waited:.0f} s (limit {limit_secs:.0f} s to the'
    f' first one) {in_flight}. The model server may be unreachable, too slow,'
    ' or still compiling its programs. Check its log, or raise --silence_secs'
    ' above this limit'
  )


def _give_up(reason: str, counts: sut_lib.Counts | None) -> NoReturn:
  issued, done = (counts.issued, counts.done) if counts else (0, 0)
  run_lib.send(run_lib.RunStatus(issued, done, failure=reason))
  # LoadGen waits for answers that will never arrive. Its call cannot be
  # interrupted.
  os._exit(1)
