"""LoadGen's system under test: hands samples to a system, returns its answers.

Threads: LoadGen calls `issue` from its own thread with all samples of a query,
which returns at once. A sample that comes alone is handed to the system on that
thread, as a change of threads would cost more than all else that is done here.
Queries of many samples, and what comes while `concurrency` samples are
unanswered, go through a feeder thread. Answers arrive on the system's threads
and go to LoadGen from there.
"""

import collections
from collections.abc import Sequence
import dataclasses
import threading
import time

import mlperf_loadgen

from harness.loadgen import system as system_lib
from harness.loadgen import timeline as timeline_lib


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
    self._concurrency = concurrency
    self._lock = threading.Lock()
    # Says that a sample waits and may be sent.
    self._may_send = threading.Condition(self._lock)
    self._waiting: collections.deque[_Sample] = collections.deque()
    self._feeding = False  # The feeder hands over a sample right now.
    self._issued = self._sent = self._done = 0
    self._first_issue = self._last_answer = time.monotonic()
    self.failure: str | None = None
    self.timeline = timeline_lib.Timeline()
    threading.Thread(target=self._feed, name='feeder', daemon=True).start()

  def issue(self, samples: Sequence['mlperf_loadgen.QuerySample']) -> None:
    """Takes the samples of a query; returns at once."""
    now = time.monotonic()
    if len(samples) == 1:
      self._issue_one(_Sample(self, samples[0].id, samples[0].index, now))
      return
    order = system_lib.copies_longest_first(
      [sample.index for sample in samples], self._sizes, self._copy
    )
    taken = [_Sample(self, samples[p].id, samples[p].index, now) for p in order]
    with self._lock:
      self._note_issue(len(taken), now)
      self._waiting.extend(taken)
      self._may_send.notify()

  def _issue_one(self, sample: '_Sample') -> None:
    with self._lock:
      self._note_issue(1, sample.issued)
      # Samples keep their order, and the system is asked by one thread only.
      if self._waiting or self._feeding or not self._is_free():
        self._waiting.append(sample)
        self._may_send.notify()
        return
      self._sent += 1
    self._send(sample)

  def _note_issue(self, count: int, now: float) -> None:
    """Counts samples; the lock is held."""
    if not self._issued:
      self._first_issue = self._last_answer = now
    elif self._issued == self._done:
      self._last_answer = now  # Nobody was silent while nothing was asked.
    self._issued += count

  def _is_free(self) -> bool:
    """Whether the system may get one more; the lock is held."""
    return self._sent - self._done < self._concurrency

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
    while self.failure is None:
      with self._lock:
        self._feeding = False
        while not (self._waiting and self._is_free()):
          self._may_send.wait()
        sample = self._waiting.popleft()
        self._sent += 1
        self._feeding = True
      self._send(sample)

  def _send(self, sample: '_Sample') -> None:
    if self.failure:
      return
    sample.sent = time.monotonic()
    try:
      self._system.answer(sample.index, sample)
    except Exception as error:  # Whatever it is ends the run, with its name.
      self.fail(f'sample {sample.index} could not be sent: {_text(error)}')

  def complete(self, sample: '_Sample', answer: system_lib.Answer) -> None:
    """Takes an answer to LoadGen."""
    now = time.monotonic()
    with self._lock:
      if self.failure:
        return
      self._done += 1
      self._last_answer = now
      if self._waiting:
        self._may_send.notify()
    data = answer.data
    # LoadGen copies the bytes before this returns.
    mlperf_loadgen.QuerySamplesComplete(
      [
        mlperf_loadgen.QuerySampleResponse(
          sample.id, data.ctypes.data, data.nbytes
        )
      ]
    )
    start = self._first_issue
    self.timeline.add(
      sample.index,
      sample.issued - start,
      sample.sent - start,
      sample.first and sample.first - start,
      now - start,
      answer.tokens,
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
