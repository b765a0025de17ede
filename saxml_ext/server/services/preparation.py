"""Tokenizes prompts, within a bound of the whole server.

A tokenizer takes about a millisecond for an article, on a thread that lets go
of the interpreter meanwhile. These threads are few, and what waits for them is
held in memory before any model's own bound sees it. So the server holds so many
requests in preparation and refuses further ones at once.
"""

import asyncio
from collections.abc import Callable, Iterator
import contextlib
from typing import Any

from saxml_ext.common import errors

# Texts of 4 MiB, gRPC's limit of a message, take 1 GiB then; usual prompts of
# 10 kB take seconds to tokenize.
_LIMIT = 256
_RETRY_SECS = 0.1
# Characters that would hold up the event loop for milliseconds.
_LONG = 2**16


class Preparation:
  """A bound on what one event loop prepares at a time."""

  def __init__(self, limit: int = _LIMIT):
    """Takes the most requests that are prepared at a time."""
    self._limit = limit
    self._held = 0

  async def run(
    self, in_place: bool, function: Callable[..., Any], *args: Any
  ) -> Any:
    """Calls a function, on a thread unless it is quick enough to do in place.

    Args:
      in_place: whether it takes microseconds for a usual text, as reading ids
        does.
      function: what to call.
      *args: its arguments, texts among them.

    Returns:
      What it returns.

    Raises:
      errors.ResourceExhausted: too much is in preparation.
    """
    if in_place and all(len(a) < _LONG for a in args if isinstance(a, str)):
      return function(*args)
    with self._place():
      return await asyncio.to_thread(function, *args)

  @contextlib.contextmanager
  def _place(self) -> Iterator[None]:
    if self._held >= self._limit:
      raise errors.ResourceExhausted(
        f'Too many requests: {self._held} are being tokenized, and'
        f' the limit of this server is {self._limit}; try again later',
        retry_after=_RETRY_SECS,
      )
    self._held += 1
    try:
      yield
    finally:
      self._held -= 1
