"""Implements LoadGen's system under test, which passes samples to a system.

LoadGen calls `issue` from its own thread with all samples of a query, and the
call returns at once. A single sample goes to the system on that thread, because
a change of threads would take longer than all other work here. A feeder thread
sends queries of many samples, and samples that arrive while `concurrency`
samples are unanswered. Answers arrive on the system's threads, and LoadGen
receives them on the same threads.
"""

import collections
from collections.abc import Sequence
import dataclasses
import threading
import time

import mlperf_loadgen
import numpy as np

from harness.loadgen import loadgen_log
from harness.loadgen import system as system_lib


@dataclasses.dataclass(frozen=True)
class Counts:
  """A snapshot of the counts of a run.

  Attributes:
    issued: The number of samples that LoadGen has issued.
    done: The number of answered samples.
    in_flight: The number of samples that the system has and has not answered.
    seconds: The elapsed time since the first sample was issued.
    silence_secs: The elapsed time since the last answer, or since the issue if
      there is no answer yet.
  """

  issued: int
  done: int
  in_flight: int
  seconds: float
  silence_secs: float


class SystemUnderTest:
  """Answers LoadGen's samples with a system.

  Attributes:
    failure: The reason why the run cannot continue; None while it can. After a
      failure no more samples are answered and LoadGen would wait forever. The
      caller must then end the process.
    timeline: The times of every sample.
  """

  def __init__(
    self,
    system: system_lib.System,
    sizes: Sequence[int],
    copy: int,
    concurrency: int,
    first_tokens: bool = False,
  ):
    """Starts the feeder thread.

    Args:
      system: The system that answers the samples.
      sizes: The length of each sample by index; see
        `system.copies_longest_first`.
      copy: The number of samples in a copy of the set.
      concurrency: The maximum number of samples that are sent and not
        answered.
      first_tokens: True if LoadGen requires the first token of every answer.
    """
    self._system = system
    self._sizes = sizes
    self._copy = copy
    self._concurrency = concurrency
    self._first_tokens = first_tokens
    self._lock = threading.Lock()
    # The condition is notified when a sample waits and may be sent.
    self._may_send = threading.Condition(self._lock)
    self._waiting: collections.deque[_Sample] = collections.deque()
    self._feeding = False  # True while the feeder sends a sample.
    self._issued = self._sent = self._done = 0
    self._first_issue = self._last_answer = time.monotonic()
    self.failure: str | None = None
    self.timeline: list[loadgen_log.Times] = []
    threading.Thread(target=self._feed, name='feeder', daemon=True).start()

  def issue(self, samples: Sequence['mlperf_loadgen.QuerySample']) -> None:
    """Queues or sends the samples of a query; returns at once."""
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
      # Samples keep their order, and only one thread calls the system at a
      # time.
      if self._waiting or self._feeding or not self._is_free():
        self._waiting.append(sample)
        self._may_send.notify()
        return
      self._sent += 1
    self._send(sample)

  def _note_issue(self, count: int, now: float) -> None:
    """Counts issued samples; the lock must be held."""
    if not self._issued:
      self._first_issue = self._last_answer = now
    elif self._issued == self._done:
      self._last_answer = now  # Idle time is not silence.
    self._issued += count

  def _is_free(self) -> bool:
    """Returns True if the system may get a sample; the lock must be held."""
    return self._sent - self._done < self._concurrency

  def flush(self) -> None:
    """Does nothing, because no sample is held back."""

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
    except Exception as error:  # Any error ends the run.
      self.fail(f'sample {sample.index} cannot be sent: {_text(error)}')

  def first_token(self, sample: '_Sample') -> None:
    """Passes the first token of an answer to LoadGen if that requires it."""
    if not self._first_tokens or sample.token is None or self.failure:
      return
    data = np.array([sample.token], np.int32)
    # LoadGen copies the bytes before this call returns.
    mlperf_loadgen.FirstTokenComplete(
      [
        mlperf_loadgen.QuerySampleResponse(
          sample.id, data.ctypes.data, data.nbytes
        )
      ]
    )

  def _first_token_problem(
    self, sample: '_Sample', answer: system_lib.Answer
  ) -> str | None:
    """Returns the reason why LoadGen cannot get an answer; None if it can."""
    if not self._first_tokens:
      return None
    if sample.token is None:
      return (
        f'sample {sample.index} was answered, but its first token was not'
        ' reported. LoadGen measures its time in this scenario. Use a system'
        ' that streams, such as a cell with ENABLE_GENERATE_STREAM=true'
      )
    if not answer.tokens or answer.data[0] != sample.token:
      return (
        f'sample {sample.index} was answered with'
        f' {answer.data[:4].tolist()}..., but the first token was reported as'
        f' {sample.token}. Use a server that does not change what it streamed'
      )
    return None

  def complete(self, sample: '_Sample', answer: system_lib.Answer) -> None:
    """Passes an answer to LoadGen."""
    now = time.monotonic()
    if problem := self._first_token_problem(sample, answer):
      self.fail(problem)
    with self._lock:
      if self.failure:
        return
      self._done += 1
      self._last_answer = now
      if self._waiting:
        self._may_send.notify()
    data = answer.data
    # LoadGen copies the bytes before this call returns.
    mlperf_loadgen.QuerySamplesComplete(
      [
        mlperf_loadgen.QuerySampleResponse(
          sample.id, data.ctypes.data, data.nbytes, answer.tokens
        )
      ]
    )
    start = self._first_issue
    self.timeline.append(
      loadgen_log.Times(
        sample.index,
        sample.issued - start,
        sample.sent - start,
        sample.first and sample.first - start,
        now - start,
        answer.tokens,
      )
    )

  def fail(self, reason: str) -> None:
    """Ends the run. If it has already failed, the first reason stays."""
    with self._lock:
      self.failure = self.failure or reason


class _Sample:
  """A sample on its way, which is also the system's reply object."""

  __slots__ = ('_sut', 'id', 'index', 'issued', 'sent', 'first', 'token')

  def __init__(self, sut: SystemUnderTest, sample_id, index, issued):
    self._sut = sut
    self.id = sample_id
    self.index = index
    self.issued = issued
    self.sent = issued
    self.first: float | None = None
    self.token: int | None = None

  def first_token(self, token: int | None = None) -> None:
    self.first = time.monotonic()
    self.token = token
    self._sut.first_token(self)

  def done(self, answer: system_lib.Answer) -> None:
    self._sut.complete(self, answer)

  def failed(self, error: Exception) -> None:
    self._sut.fail(f'sample {self.index} failed: {_text(error)}')


def _text(error: Exception) -> str:
  return str(error) or type(error).__name__
