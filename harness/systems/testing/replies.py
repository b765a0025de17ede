"""Records the replies of a system to a sample, for tests."""

import queue
import typing

from harness.loadgen import system

FIRST_TOKEN = 'first token'


class Reply:
  """Records the calls for one sample in their order.

  Attributes:
    token: The first token; None if it is unknown.
  """

  def __init__(self) -> None:
    self._calls: queue.SimpleQueue[object] = queue.SimpleQueue()
    self.token: int | None = None

  def first_token(self, token: int | None = None) -> None:
    self.token = token
    self._calls.put(FIRST_TOKEN)

  def done(self, answer: system.Answer) -> None:
    self._calls.put(answer)

  def failed(self, error: Exception) -> None:
    self._calls.put(error)

  def next(self) -> object:
    """Waits for FIRST_TOKEN, an answer or an error, and returns it."""
    return self._calls.get(timeout=600)

  def answer(self) -> system.Answer:
    """Returns the answer; raises the error if there is one instead."""
    call = self.next()
    if isinstance(call, Exception):
      raise call
    return typing.cast(system.Answer, call)
