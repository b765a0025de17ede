"""LoadGen's system under test: hands samples to a system, returns its answers.

Threads: LoadGen calls `issue` from its own thread with all samples of a query,
which returns at once; a feeder thread hands them to the system, at most
`concurrency` unanswered at a time; answers arrive on the system's threads and
go to LoadGen from there.
"""

import collections
from collections.abc import Sequence
import dataclasses
import threading
import time

import mlperf_loadgen

from harness.loadgen import timeline as timeline_lib
from harness.systems import system as system_lib


@dataclasses.dataclass(frozen=True)
class Counts:
  """A look at a run.

  Attributes:
    issued: samples that LoadGen has asked for.
    done: samples answered.
    in_flight: samples handed to the system and not yet answered.
    seconds: since the first sample was issued.
    silence_secs: since the last answer (or the issue, while there is none).
  """

  issued: int
  done: int
  in_flight: int
  seconds: float
  silence_secs: float


class SystemUnderTest:
  """Answers LoadGen's samples with a system.

  Attributes:
    failure: why the run cannot go on; None while it can. After a failure no
      more samples are answered, so LoadGen would wait for ever: whoever runs
      it must end the process.
    timeline: times of every sample.
  """

  def __init__(
    self,
    system: system_lib.System,
    sizes: Sequence[int],
    copy: int,
    concurrency: int,
  ):
    """Creates it.

    Args:
      system: answers the samples.
      sizes: length by sample index; see `system.copies_longest_first`.
      copy: samples in a copy of the set.
      concurrency: most samples handed over and not yet answered.
    """
    self._system = system
    self._sizes = sizes
    self._copy = copy
    self._slots = threading.Semaphore(concurrency)
    self._lock = threading.Lock()
    self._waiting: collections.deque[_Sample] = collections.deque()
    self._arrived = threading.Semaphore(0)
    self._issued = self._sent = self._done = 0
    self._first_issue = self._last_answer = time.monotonic()
    self.failure: str | None = None
    self.timeline = timeline_lib.Timeline()
    threading.Thread(target=self._feed, name='feeder', daemon=True).start()

  def issue(self, samples: Sequence['mlperf_loadgen.QuerySample']) -> None:
    """Takes the samples of a query; returns at once."""
    now = time.monotonic()
    order = [0]
    if len(samples) > 1:
      order = system_lib.copies_longest_first(
        [sample.index for sample in samples], self._sizes, self._copy
      )
    taken = [_Sample(self, samples[p].id, samples[p].index, now) for p in order]
    with self._lock:
      if not self._issued:
        self._first_issue = self._last_answer = now
      elif self._issued == self._done:
        self._last_answer = now  # Nobody was silent while nothing was asked.
      self._issued += len(taken)
      self._waiting.extend(taken)
    self._arrived.release(len(taken))

  def flush(self) -> None:
    """Nothing is held back here."""

  def counts(self) -> Counts:
    with self._lock:
      now = time.monotonic()
      return Counts(
        issued=self._issued,
        done=self._done,
        in_flight=self._sent - self._done,
        seconds=now - self._first_issue,
        silence_secs=now - self._last_answer,
      )

  def _feed(self) -> None:
    while True:
      self._arrived.acquire()
      self._slots.acquire()
      with self._lock:
        if self.failure:
          return
        sample = self._waiting.popleft()
        self._sent += 1
      sample.sent = time.monotonic()
      try:
        self._system.answer(sample.index, sample)
      except Exception as error:  # Whatever it is ends the run, with its name.
        self.fail(f'sample {sample.index} could not be sent: {_text(error)}')
        return

  def complete(self, sample: '_Sample', answer: system_lib.Answer) -> None:
    """Takes an answer to LoadGen."""
    now = time.monotonic()
    with self._lock:
      if self.failure:
        return
      self._done += 1
      self._last_answer = now
    data = answer.data
    # LoadGen copies the bytes before this returns.
    mlperf_loadgen.QuerySamplesComplete(
      [
        mlperf_loadgen.QuerySampleResponse(
          sample.id, data.ctypes.data, data.nbytes
        )
      ]
    )
    self._slots.release()
    self.timeline.add(
      timeline_lib.Times(
        index=sample.index,
        issued=sample.issued - self._first_issue,
        sent=sample.sent - self._first_issue,
        first_token=sample.first and sample.first - self._first_issue,
        done=now - self._first_issue,
        tokens=answer.tokens,
      )
    )

  def fail(self, reason: str) -> None:
    """Ends the run; the first reason stays."""
    with self._lock:
      self.failure = self.failure or reason


class _Sample:
  """A sample on its way, which is also the system's reply to it."""

  __slots__ = ('_sut', 'id', 'index', 'issued', 'sent', 'first')

  def __init__(self, sut: SystemUnderTest, sample_id, index, issued):
    self._sut = sut
    self.id = sample_id
    self.index = index
    self.issued = issued
    self.sent = issued
    self.first: float | None = None

  def first_token(self) -> None:
    self.first = time.monotonic()

  def done(self, answer: system_lib.Answer) -> None:
    self._sut.complete(self, answer)

  def failed(self, error: Exception) -> None:
    self._sut.fail(f'sample {self.index} failed: {_text(error)}')


def _text(error: Exception) -> str:
  return str(error) or type(error).__name__
