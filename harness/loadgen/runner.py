"""Runs LoadGen once, in this process, against a system.

A process runs LoadGen once: LoadGen's own defaults of a benchmark reach only
the first settings of a process, so a second run would silently lose the seeds.
The harness starts a program for each run, which says what it needs besides by
flags of its own and calls `main` with a function that makes its system; the
harness reads run_status lines from the program's output. A program ends with
exit code 1 as soon as an answer fails.
"""

from collections.abc import Callable, Sequence
import dataclasses
import json
import os
import threading
from typing import NoReturn

from absl import flags
import mlperf_loadgen

from harness.loadgen import run_status
from harness.loadgen import settings
from harness.loadgen import sut as sut_lib
from harness.loadgen import system as system_lib
from harness.loadgen import warm_up
from harness.rules import rounds

MODES = {
  'accuracy': mlperf_loadgen.TestMode.AccuracyOnly,
  'performance': mlperf_loadgen.TestMode.PerformanceOnly,
}

_BENCHMARK = flags.DEFINE_enum(
  'benchmark', rounds.GPTJ, rounds.BENCHMARKS, "LoadGen's benchmark."
)
_SCENARIO = flags.DEFINE_enum(
  'scenario', rounds.OFFLINE, rounds.SCENARIOS, 'LoadGen scenario.'
)
_MODE = flags.DEFINE_enum('mode', None, sorted(MODES), 'What to run.')
_USER_CONF = flags.DEFINE_string('user_conf', None, "LoadGen's user.conf.")
_ATTRIBUTES = flags.DEFINE_string(
  'loadgen_attributes',
  '{}',
  'Fields of TestSettings that user.conf cannot set, as a JSON object.',
)
_AUDIT_CONF = flags.DEFINE_string(
  'audit_conf', '', 'audit.config of a compliance test; empty: none.'
)
_OUTPUT_DIR = flags.DEFINE_string('output_dir', None, 'Where logs go.')
_TIMELINE = flags.DEFINE_string(
  'timeline', None, 'CSV file for the times of every sample.'
)
_BUFFER_COUNT = flags.DEFINE_integer(
  'buffer_count', 0, 'Samples that LoadGen draws from; 0: the whole set.', 0
)
_CONCURRENCY = flags.DEFINE_integer(
  'concurrency', None, 'Most unanswered samples.', 1
)
_SILENCE_SECS = flags.DEFINE_float(
  'silence_secs', None, 'Time without any answer that ends the run.', 1
)
_WARM_UP = flags.DEFINE_string(
  'warm_up',
  '',
  'Samples to answer before the run, as sizes of bursts: 1-32,36 asks for one'
  ' sample, then for two at once, up to 32, then for 36. Empty: none.',
)
_WARM_UP_REST_SECS = flags.DEFINE_float(
  'warm_up_rest_secs', 0.0, 'Pause between warm-up and run.', 0
)

REQUIRED_FLAGS = (
  'mode',
  'user_conf',
  'output_dir',
  'concurrency',
  'silence_secs',
)

_STATUS_INTERVAL_SECS = 0.5

# Time to the first answer, at least, after which a run is given up: a model
# may compile its programs for it.
_FIRST_ANSWER_SECS = 300.0


@dataclasses.dataclass(frozen=True)
class Subject:
  """What a program's run is about.

  Attributes:
    system: answers the samples.
    sizes: length by sample index, such as tokens of the prompt: as many as the
      set has samples. See `system.copies_longest_first`.
    network_name: asks a system on other nodes for its name, over the network;
      None for a system on this node. With it the run is one of LoadGen over
      the network: samples are only dispatched, in LoadGen's own order.
  """

  system: system_lib.System
  sizes: Sequence[int]
  network_name: Callable[[], str] | None = None


def mark_flags_as_required() -> None:
  flags.mark_flags_as_required(REQUIRED_FLAGS)


def silence_secs() -> float:
  """Time without any answer that ends the run."""
  return _SILENCE_SECS.value


def main(make: Callable[[], Subject]) -> None:
  """Runs LoadGen to its end; ends the process with exit code 1 if that fails.

  Args:
    make: makes the system; its OSError and ValueError are told to the harness.
  """
  try:
    bursts = warm_up.parse(_WARM_UP.value)
    subject = make()
  except (OSError, ValueError) as error:
    _give_up(str(error), None)
  count = len(subject.sizes)
  buffer_count = min(_BUFFER_COUNT.value or count, count)
  try:
    warm_up.run(
      subject.system,
      count,
      bursts,
      _WARM_UP_REST_SECS.value,
      _SILENCE_SECS.value,
      max(_SILENCE_SECS.value, _FIRST_ANSWER_SECS),
    )
  except warm_up.WarmUpError as error:
    _give_up(str(error), None)
  sut = sut_lib.SystemUnderTest(
    subject.system,
    # The rules leave sorting to the nodes of a system over the network.
    [0] * count if subject.network_name else subject.sizes,
    # An accuracy run goes once over the whole set.
    count if _MODE.value == 'accuracy' else buffer_count,
    _CONCURRENCY.value,
  )
  ended = threading.Event()
  watch = threading.Thread(target=_watch, args=(sut, ended), daemon=True)
  watch.start()
  _run(sut, count, buffer_count, subject.network_name)
  # The last status must stay the last.
  ended.set()
  watch.join()
  subject.system.close()
  counts = sut.counts()
  try:
    _write_timeline(sut)
  except OSError as error:
    _give_up(f'the times of samples could not be written: {error}', counts)
  run_status.send(
    run_status.RunStatus(counts.issued, counts.done, counts.seconds, True)
  )


def _run(
  sut: sut_lib.SystemUnderTest,
  count: int,
  buffer_count: int,
  network_name: Callable[[], str] | None,
) -> None:
  """Lets LoadGen run to its end; blocks."""
  test = settings.load(
    _USER_CONF.value,
    _BENCHMARK.value,
    _SCENARIO.value,
    json.loads(_ATTRIBUTES.value),
  )
  test.mode = MODES[_MODE.value]
  log = mlperf_loadgen.LogSettings()
  log.enable_trace = False
  output = mlperf_loadgen.LogOutputSettings()
  output.outdir = _OUTPUT_DIR.value
  output.copy_summary_to_stdout = False
  log.log_output = output
  # All samples are in memory before the run, so there is nothing to load.
  library = mlperf_loadgen.ConstructQSL(
    count, buffer_count, lambda indices: None, lambda indices: None
  )
  if network_name is None:
    handle = mlperf_loadgen.ConstructSUT(sut.issue, sut.flush)
    destroy = mlperf_loadgen.DestroySUT
  else:
    handle = mlperf_loadgen.ConstructQDL(
      sut.issue, sut.flush, lambda: _name(network_name)
    )
    destroy = mlperf_loadgen.DestroyQDL
  # By name: an audit.config in the user's directory must not change the run.
  mlperf_loadgen.StartTestWithLogSettings(
    handle, library, test, log, _AUDIT_CONF.value
  )
  destroy(handle)
  mlperf_loadgen.DestroyQSL(library)


def _name(network_name: Callable[[], str]) -> str:
  """The name for LoadGen's log. LoadGen's threads bear no exception."""
  try:
    return network_name()
  except Exception as error:  # Whatever it is ends the run, with its name.
    _give_up(f'the Network SUT does not tell its name: {error}', None)


def _watch(sut: sut_lib.SystemUnderTest, ended: threading.Event) -> None:
  """Reports progress, and ends the process when the run cannot go on."""
  while not ended.wait(_STATUS_INTERVAL_SECS):
    counts = sut.counts()
    if sut.failure:
      _abandon(sut, sut.failure)
    if reason := silence(counts, _SILENCE_SECS.value):
      _abandon(sut, reason)
    run_status.send(
      run_status.RunStatus(counts.issued, counts.done, counts.seconds)
    )


def silence(counts: sut_lib.Counts, limit_secs: float) -> str | None:
  """Returns why a run is given up for lack of answers; None if it goes on.

  Args:
    counts: The samples so far.
    limit_secs: The longest time without any answer, after the first one.
  """
  waited = counts.silence_secs
  if counts.issued == counts.done or waited <= limit_secs:
    return None
  told = f'with {counts.in_flight} requests in flight'
  if counts.done:
    return (
      f'no answer for {waited:.0f} s (limit {limit_secs:.0f} s) {told} and'
      f' {counts.done} of {counts.issued} answered; the model server is gone or'
      ' too slow: look at it, or raise --silence_secs'
    )
  limit_secs = max(limit_secs, _FIRST_ANSWER_SECS)
  if waited <= limit_secs:
    return None
  return (
    f'no answer at all within {waited:.0f} s (limit {limit_secs:.0f} s to the'
    f' first one) {told}; the model server never answered: it may not be'
    ' reachable, still compile its programs, or be too slow; look at its log, or'
    ' raise --silence_secs above this'
  )


def _abandon(sut: sut_lib.SystemUnderTest, reason: str) -> NoReturn:
  """Gives a run up, keeping the times of what was answered."""
  try:
    _write_timeline(sut)
  except OSError as error:
    reason += f'; the times of what was answered are lost: {error}'
  _give_up(reason, sut.counts())


def _write_timeline(sut: sut_lib.SystemUnderTest) -> None:
  if _TIMELINE.value:
    sut.timeline.write(_TIMELINE.value)


def _give_up(reason: str, counts: sut_lib.Counts | None) -> NoReturn:
  issued, done = (counts.issued, counts.done) if counts else (0, 0)
  run_status.send(run_status.RunStatus(issued, done, failure=reason))
  # LoadGen waits for answers that will not come, in a call that cannot be
  # interrupted.
  os._exit(1)
