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
    self._said: queue.SimpleQueue[object] = queue.SimpleQueue()
    self.token: int | None = None

  def first_token(self, token: int | None = None) -> None:
    self.token = token
    self._said.put(FIRST_TOKEN)

  def done(self, answer: system.Answer) -> None:
    self._said.put(answer)

  def failed(self, error: Exception) -> None:
    self._said.put(error)

  def next(self) -> object:
    """Waits for FIRST_TOKEN, an answer or an error, and returns it."""
    return self._said.get(timeout=600)

  def answer(self) -> system.Answer:
    """Returns the answer; raises the error if there is one instead."""
    said = self.next()
    if isinstance(said, Exception):
      raise said
    return typing.cast(system.Answer, said)
