"""Warms up a system with samples that are answered before LoadGen starts."""

from collections.abc import Sequence
import queue
import time

from harness.loadgen import system as system_lib


class WarmUpError(Exception):
  """Raised if a sample of the warm-up was not answered."""


def parse(text: str) -> list[int]:
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
        f'--warm_up={text}: {part!r} is no size of a burst; write sizes and'
        ' ranges of them with commas between, such as 1-32,36'
      )
    sizes += range(begin, end + 1)
  return sizes


def run(
  system: system_lib.System,
  sample_count: int,
  bursts: Sequence[int],
  rest_secs: float,
  silence_secs: float,
  first_secs: float = 0.0,
) -> None:
  """Runs bursts of samples, each after the answers to the previous one.

  Args:
    system: The system that answers the samples.
    sample_count: The number of samples in the set. They are used in turn.
    bursts: The sizes of the bursts.
    rest_secs: The pause after the last burst, if there is any.
    silence_secs: The time without any answer after which the warm-up fails.
    first_secs: The same limit for the very first answer, if it is longer.

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
        raise WarmUpError(f'warm-up: could not be sent: {error}') from error
      index += 1
    for _ in range(size):
      try:
        failure = replies.get(timeout=limit_secs)
      except queue.Empty:
        raise WarmUpError(
          f'warm-up: no answer to a burst of {size} samples for'
          f' {limit_secs:.0f} s; the system is gone or too slow: look at it,'
          ' or raise --silence_secs'
        ) from None
      if failure is not None:
        raise WarmUpError(f'warm-up: a sample failed: {failure}') from failure
      limit_secs = silence_secs
  if bursts:
    time.sleep(rest_secs)


class _Reply:
  """Forwards the result of a sample to a queue."""

  def __init__(self, replies: 'queue.SimpleQueue[Exception | None]'):
    self._replies = replies

  def first_token(self) -> None:
    pass

  def done(self, answer: system_lib.Answer) -> None:
    self._replies.put(None)

  def failed(self, error: Exception) -> None:
    self._replies.put(error)
