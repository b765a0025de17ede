"""Lets a function that answers whole batches stand behind `system.System`."""

from collections.abc import Callable, Sequence
import queue
import threading

from harness.loadgen import system


class BatchedSystem:
  """Answers samples in batches on a thread of its own.

  A batch holds what waits when the one before it is done, at most `batch_size`
  samples, so that nothing waits for a batch to fill.
  """

  def __init__(
    self,
    answer_batch: Callable[[Sequence[int]], Sequence[system.Answer]],
    batch_size: int,
  ):
    """Starts the thread.

    Args:
      answer_batch: indices of samples -> their answers, in the same order.
      batch_size: most samples of a batch.
    """
    self._answer_batch = answer_batch
    self._batch_size = batch_size
    self._waiting: queue.SimpleQueue[tuple[int, system.Reply] | None] = (
      queue.SimpleQueue()
    )
    self._thread = threading.Thread(
      target=self._work, name='batches', daemon=True
    )
    self._thread.start()

  def answer(self, index: int, reply: system.Reply) -> None:
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

  def _next_batch(self) -> list[tuple[int, system.Reply]]:
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
