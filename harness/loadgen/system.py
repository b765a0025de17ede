"""Defines the interface of systems that answer LoadGen's samples.

A system runs in the process that runs LoadGen. When it has been created it is
ready: weights are loaded, connections are open and programs are compiled. It is
then called once per sample, with the sample's index in the set:

* A client of a cell sends the sample to the cell and answers on its own thread.
* A system that computes in this process passes a function for whole batches to
  `BatchedSystem`, which combines the waiting samples.
"""

from collections.abc import Callable, Sequence
import dataclasses
import queue
import threading
import time
from typing import Protocol

import numpy as np


@dataclasses.dataclass(frozen=True)
class Answer:
  """LoadGen's data of an answered sample.

  Attributes:
    data: The answer in the format of the benchmark's evaluation, contiguous:
      int64 token ids [T] for a GPT-J, int32 for a Llama, float32 logits [T, 2]
      for a BERT.
    tokens: The number of generated tokens; 0 for a BERT.
  """

  data: np.ndarray
  tokens: int = 0


class Reply(Protocol):
  """Receives the answer or the failure of one sample, from any thread."""

  def first_token(self, token: int | None = None) -> None:
    """Reports the first token, if the system can observe it.

    It is called at most once, and on the thread that calls `done`. LoadGen
    would otherwise record the two calls in any order.

    Args:
      token: The id of the token; None if the system observes only the time.
    """

  def done(self, answer: Answer) -> None:
    """Reports the answer. Called once, and never together with `failed`."""

  def failed(self, error: Exception) -> None:
    """Reports that there will be no answer. The run ends with this error."""


class System(Protocol):
  """Answers samples."""

  def answer(self, index: int, reply: Reply) -> None:
    """Begins to answer a sample; returns without waiting for the answer.

    Args:
      index: The index of the sample in the set.
      reply: The receiver of the answer. It is called from any thread, possibly
        before this method returns.

    Raises:
      Exception: The sample could not be sent. The run ends with this error.
    """

  def close(self) -> None:
    """Ends threads and connections. No sample waits for an answer any more."""


class BatchedSystem:
  """Answers samples in batches on its own thread.

  A batch has the samples that wait when the previous batch is done, and at most
  `batch_size`. No sample waits for a batch to become full.
  """

  def __init__(
    self,
    answer_batch: Callable[[Sequence[int]], Sequence[Answer]],
    batch_size: int,
  ):
    """Starts the thread.

    Args:
      answer_batch: The function that takes indices of samples and returns their
        answers in the same order.
      batch_size: The maximum number of samples in a batch.
    """
    self._answer_batch = answer_batch
    self._batch_size = batch_size
    self._waiting: queue.SimpleQueue[tuple[int, Reply] | None] = (
      queue.SimpleQueue()
    )
    self._thread = threading.Thread(
      target=self._work, name='batches', daemon=True
    )
    self._thread.start()

  def answer(self, index: int, reply: Reply) -> None:
    self._waiting.put((index, reply))

  def close(self) -> None:
    self._waiting.put(None)
    self._thread.join()

  def _work(self) -> None:
    while batch := self._next_batch():
      indices = [index for index, _ in batch]
      try:
        answers = self._answer_batch(indices)
        if len(answers) != len(batch):
          raise ValueError(
            f'the system returned {len(answers)} answers for {len(batch)}'
            ' samples'
          )
      except Exception as error:  # Any error ends the run.
        for _, reply in batch:
          reply.failed(error)
        continue
      for (_, reply), answer in zip(batch, answers, strict=True):
        reply.done(answer)

  def _next_batch(self) -> list[tuple[int, Reply]]:
    """Returns the waiting samples as soon as there are any.

    After `close`, the list is empty.
    """
    batch = []
    item = self._waiting.get()
    while item is not None:
      batch.append(item)
      if len(batch) == self._batch_size:
        break
      try:
        item = self._waiting.get_nowait()
      except queue.Empty:
        break
    else:
      self._waiting.put(None)  # Also ends the next call.
    return batch


def copies_longest_first(
  indices: Sequence[int], sizes: Sequence[int], copy: int
) -> list[int]:
  """Returns the order in which to send the samples of one query.

  An Offline query joins whole copies of the set. Within a copy, the longest
  samples go first. Neighbors of equal length waste the least part of a batch.
  The longest samples also do not remain for the end, when too few other samples
  are left to fill a batch. The benchmark's rules do not allow sorting across
  the end of a copy.

  Args:
    indices: The indices of the query's samples, in LoadGen's order.
    sizes: The length of each sample by index, such as the tokens of the prompt.
    copy: The number of samples in a copy of the set, as LoadGen draws them.

  Returns:
    The positions in `indices`, each once.
  """
  return [
    position
    for start in range(0, len(indices), copy)
    for position in sorted(
      range(start, min(start + copy, len(indices))),
      key=lambda p: -sizes[indices[p]],
    )
  ]


class WarmUpError(Exception):
  """Raised if a sample of the warm-up was not answered."""


def parse_bursts(text: str) -> list[int]:
  """Parses sizes of bursts: "1-4,36" is [1, 2, 3, 4, 36].

  Raises:
    ValueError: The text has another format.
  """
  sizes: list[int] = []
  for part in filter(None, text.split(',')):
    first, dash, last = part.partition('-')
    try:
      begin, end = int(first), int(last if dash else first)
    except ValueError:
      begin = end = 0
    if not 1 <= begin <= end:
      raise ValueError(
        f'--warm_up={text}: {part!r} is no size of a burst. Write sizes and'
        ' ranges, separated by commas, such as 1-32,36'
      )
    sizes += range(begin, end + 1)
  return sizes


def warm_up(
  system: System,
  sample_count: int,
  bursts: Sequence[int],
  rest_secs: float,
  silence_secs: float,
  first_secs: float = 0.0,
  on_answer: Callable[[], None] = lambda: None,
) -> None:
  """Runs bursts of samples, each after the answers to the previous one.

  Args:
    system: The system that answers the samples.
    sample_count: The number of samples in the set. They are used in turn.
    bursts: The sizes of the bursts.
    rest_secs: The pause after the last burst, if there is any.
    silence_secs: The time without any answer after which the warm-up fails.
    first_secs: The same limit for the very first answer, if it is longer.
    on_answer: A function that is called after each answer.

  Raises:
    WarmUpError: A sample was not answered.
  """
  index = 0
  limit_secs = max(silence_secs, first_secs)
  for size in bursts:
    replies: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
    for _ in range(size):
      try:
        system.answer(index % sample_count, _Reply(replies))
      except Exception as error:  # Any error would also fail the run.
        raise WarmUpError(
          f'a sample of the warm-up cannot be sent: {error}'
        ) from error
      index += 1
    for _ in range(size):
      try:
        failure = replies.get(timeout=limit_secs)
      except queue.Empty:
        raise WarmUpError(
          f'warm-up: no answer to a burst of {size} samples for'
          f' {limit_secs:.0f} s. The system is gone or too slow. Check its'
          ' log, or raise --silence_secs'
        ) from None
      if failure is not None:
        raise WarmUpError(
          f'a sample of the warm-up failed: {failure}'
        ) from failure
      limit_secs = silence_secs
      on_answer()
  if bursts:
    time.sleep(rest_secs)


class _Reply:
  """Forwards the result of a sample to a queue."""

  def __init__(self, replies: 'queue.SimpleQueue[Exception | None]'):
    self._replies = replies

  def first_token(self, token: int | None = None) -> None:
    pass

  def done(self, answer: Answer) -> None:
    self._replies.put(None)

  def failed(self, error: Exception) -> None:
    self._replies.put(error)
