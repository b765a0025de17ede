"""What answers LoadGen's samples: one small interface for every system.

A system lives in the process that runs LoadGen and is ready when it is made:
weights loaded, connections open, programs compiled. From then on it is asked
sample by sample, by the sample's index in the set:

* a client of a cell sends the sample on and answers on a thread of its own;
* systems that compute in this process give a function of whole batches to
  `BatchedSystem`, which takes what waits.
"""

from collections.abc import Callable, Sequence
import dataclasses
import queue
import threading
from typing import Protocol

import numpy as np


@dataclasses.dataclass(frozen=True)
class Answer:
  """What LoadGen logs of a sample.

  Attributes:
    data: the answer as the benchmark's evaluation reads it, contiguous: int64
      token ids [T] of a GPT-J, float32 logits [T, 2] of a BERT.
    tokens: how many tokens were generated; 0 where none are.
  """

  data: np.ndarray
  tokens: int = 0


class Reply(Protocol):
  """Takes what becomes of one sample. Any thread may call it."""

  def first_token(self) -> None:
    """Says that the first token is there, where a system knows when."""

  def done(self, answer: Answer) -> None:
    """Takes the answer. Called once, and never together with `failed`."""

  def failed(self, error: Exception) -> None:
    """Says that there will be no answer; the run ends with this error."""


class System(Protocol):
  """Answers samples."""

  def answer(self, index: int, reply: Reply) -> None:
    """Begins to answer a sample, and returns without waiting for the answer.

    Args:
      index: of the sample in the set.
      reply: told of the answer, from any thread, also before this returns.

    Raises:
      Exception: the sample could not even be sent; the run ends with it.
    """

  def close(self) -> None:
    """Ends threads and connections; nothing is waiting for an answer."""


class BatchedSystem:
  """Answers samples in batches on a thread of its own.

  A batch holds what waits when the one before it is done, at most `batch_size`
  samples, so that nothing waits for a batch to fill.
  """

  def __init__(
    self,
    answer_batch: Callable[[Sequence[int]], Sequence[Answer]],
    batch_size: int,
  ):
    """Starts the thread.

    Args:
      answer_batch: indices of samples -> their answers, in the same order.
      batch_size: most samples of a batch.
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
          raise ValueError(f'{len(answers)} answers to {len(batch)} samples')
      except Exception as error:  # Whatever it is ends the run, with its name.
        for _, reply in batch:
          reply.failed(error)
        continue
      for (_, reply), answer in zip(batch, answers, strict=True):
        reply.done(answer)

  def _next_batch(self) -> list[tuple[int, Reply]]:
    """What waits, as soon as there is anything; empty after `close`."""
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
      self._waiting.put(None)  # Seen by the next call too.
    return batch


def copies_longest_first(
  indices: Sequence[int], sizes: Sequence[int], copy: int
) -> list[int]:
  """The order in which the samples of one query are sent: positions in it.

  An Offline query joins whole copies of the set. Within a copy the longest
  samples go first: neighbours of one length waste least of a batch, and the
  longest are not left for the end, when others no longer fill it. Across the
  end of a copy the benchmark's rules forbid any sorting.

  Args:
    indices: of the query's samples, in LoadGen's order.
    sizes: length by index, such as tokens of the prompt.
    copy: samples in a copy of the set, as LoadGen draws them.

  Returns:
    Positions in `indices`, each once.
  """
  return [
    position
    for start in range(0, len(indices), copy)
    for position in sorted(
      range(start, min(start + copy, len(indices))),
      key=lambda p: -sizes[indices[p]],
    )
  ]
