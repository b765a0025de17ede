"""LoadGen's system under test: sends samples to the cell, returns its answers.

Threads: LoadGen calls `issue` from its own thread with all samples of a query;
a feeder thread sends them, at most `concurrency` unanswered at a time; answers
arrive on the client's threads and go to LoadGen from there.
"""

import array
import collections
from collections.abc import Callable, Collection, Sequence
from concurrent import futures
import dataclasses
import functools
import threading
import time

import mlperf_loadgen

from harness.data import summarization

# What the client returns for a prompt: (text, score), the best first.
Answers = Sequence[tuple[str, float]]


@dataclasses.dataclass(frozen=True)
class Counts:
  """A look at a run.

  Attributes:
    issued: samples that LoadGen has asked for.
    done: samples answered.
    in_flight: samples sent and not yet answered.
    seconds: since the first sample was issued.
    silence_secs: since the last answer (or the issue, while there is none).
  """

  issued: int
  done: int
  in_flight: int
  seconds: float
  silence_secs: float


class SystemUnderTest:
  """Answers LoadGen's samples from a model of the cell.

  Attributes:
    failure: why the run cannot go on; None while it can. After a failure no
      more samples are answered, so LoadGen would wait for ever: whoever runs
      it must end the process.
  """

  def __init__(
    self,
    generate: Callable[[str], 'futures.Future[Answers]'],
    prompts: Sequence[str],
    concurrency: int,
    end_ids: Collection[int] = (),
  ):
    """Creates it.

    Args:
      generate: sends one prompt to the model.
      prompts: prompt by sample index, in the form that the model takes; all
        samples of the library, so that a copy of the set is as long.
      concurrency: most samples sent and not yet answered.
      end_ids: ids that end an answer; what LoadGen logs stops before the first.
    """
    self._generate = generate
    self._prompts = prompts
    self._end_ids = frozenset(end_ids)
    self._slots = threading.Semaphore(concurrency)
    self._lock = threading.Lock()
    self._waiting: collections.deque = collections.deque()
    self._arrived = threading.Semaphore(0)
    self._issued = self._sent = self._done = 0
    self._first_issue = self._last_answer = self._now()
    self.failure: str | None = None
    threading.Thread(target=self._feed, name='feeder', daemon=True).start()

  def issue(self, samples: Sequence['mlperf_loadgen.QuerySample']) -> None:
    """Takes the samples of a query; returns at once.

    An Offline query, which is all that there is, joins copies of the set of
    articles. Within a copy samples are sent longest prompt first: neighbours of
    one length waste least of a batch, and the longest are not left for the end,
    when others no longer fill it. Across the end of a copy the benchmark's
    rules forbid any sorting.
    """
    copy = len(self._prompts)
    samples = [
      sample
      for start in range(0, len(samples), copy)
      for sample in sorted(
        samples[start : start + copy],
        key=lambda s: -len(self._prompts[s.index]),
      )
    ]
    with self._lock:
      if not self._issued:
        self._first_issue = self._last_answer = self._now()
      self._issued += len(samples)
      self._waiting.extend(samples)
    self._arrived.release(len(samples))

  def flush(self) -> None:
    """Nothing is held back here."""

  def counts(self) -> Counts:
    with self._lock:
      now = self._now()
      return Counts(
        issued=self._issued,
        done=self._done,
        in_flight=self._sent - self._done,
        seconds=now - self._first_issue,
        silence_secs=now - self._last_answer,
      )

  def _now(self) -> float:
    return time.monotonic()

  def _feed(self) -> None:
    while True:
      self._arrived.acquire()
      self._slots.acquire()
      with self._lock:
        if self.failure:
          return
        sample = self._waiting.popleft()
        self._sent += 1
      try:
        future = self._generate(self._prompts[sample.index])
      except Exception as error:  # Whatever it is ends the run, with its name.
        self._fail(f'sample {sample.index} could not be sent: {_text(error)}')
        return
      future.add_done_callback(functools.partial(self._answered, sample))

  def _answered(self, sample, future: 'futures.Future[Answers]') -> None:
    try:
      data = _response_bytes(future.result(), self._end_ids)
    except Exception as error:  # Whatever it is ends the run, with its name.
      self._fail(f'sample {sample.index} failed: {_text(error)}')
      return
    with self._lock:
      if self.failure:
        return
      self._done += 1
      self._last_answer = self._now()
    address, length = data.buffer_info()
    # LoadGen copies the bytes before this returns.
    mlperf_loadgen.QuerySamplesComplete(
      [
        mlperf_loadgen.QuerySampleResponse(
          sample.id, address, length * data.itemsize
        )
      ]
    )
    self._slots.release()

  def _fail(self, reason: str) -> None:
    with self._lock:
      self.failure = self.failure or reason


def _response_bytes(answers: Answers, end_ids: Collection[int]) -> array.array:
  """The best answer's token ids as LoadGen wants them: int64, in memory."""
  if not answers:
    raise ValueError('the model returned no answer')
  text = answers[0][0]
  try:
    ids = [int(word) for word in text.split(',')] if text else []
  except ValueError as error:
    raise ValueError(
      f'the model returned {text[:60]!r}, not comma-separated token ids;'
      ' publish it with tokenized serving params'
    ) from error
  # int64 ("q") is what the reference implementation writes.
  return array.array('q', summarization.until_end(ids, end_ids))


def _text(error: Exception) -> str:
  return str(error) or type(error).__name__
