"""Streamed answers of a cell's model, which tell when the first token is there.

A stream costs no thread: all of them share one event loop, which has a thread
of its own.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent import futures
import contextlib
import threading

# (new text, bytes of the text so far to keep before it, scores of the new text)
# of one sample, as of `saxml_ext.client.sax_aio`.
Item = tuple[str, int, list[float]]


class Streams:
  """Requests whose answers grow. Thread-safe."""

  def __init__(
    self, open_stream: Callable[[str], AsyncGenerator[list[Item], None]]
  ):
    """Starts the thread, which ends with the process.

    Args:
      open_stream: sends a prompt; yields messages, an item per sample. Called
        on the event loop.
    """
    self._open = open_stream
    self._loop = asyncio.new_event_loop()
    threading.Thread(
      target=self._loop.run_forever, name='streams', daemon=True
    ).start()

  def generate(
    self, prompt: str, on_first_token: Callable[[], None]
  ) -> 'futures.Future[list[tuple[str, float]]]':
    """Sends a prompt.

    Args:
      prompt: in the form that the model takes.
      on_first_token: called once, at the first message that has text.

    Returns:
      A future of (text, score) per sample, in the server's order, as a model's
      `Generate` returns them.
    """
    return asyncio.run_coroutine_threadsafe(
      self._read(prompt, on_first_token), self._loop
    )

  async def _read(
    self, prompt: str, on_first_token: Callable[[], None]
  ) -> list[tuple[str, float]]:
    texts: list[bytes] = []
    scores: list[float] = []
    told = False
    async with contextlib.aclosing(self._open(prompt)) as messages:
      async for items in messages:
        if not told and any(text for text, _, _ in items):
          told = True
          on_first_token()
        _grow(texts, scores, items)
    return [(t.decode(), score) for t, score in zip(texts, scores, strict=True)]


def _grow(
  texts: list[bytes], scores: list[float], items: Sequence[Item]
) -> None:
  """Adds a message to the text in UTF-8 and the score of each sample.

  Raises:
    ValueError: the message is of fewer samples than the one before. There may
      be more, as a beam search tells of its best answer alone until its end.
  """
  more = len(items) - len(texts)
  texts += [b''] * more
  scores += [0.0] * more
  if more < 0:
    raise ValueError(
      f'a stream of {len(texts)} samples sent a message of {len(items)}; the'
      ' server is not one of Sax, or it failed'
    )
  for i, (text, keep, new) in enumerate(items):
    texts[i] = texts[i][:keep] + text.encode()
    scores[i] += new[0]  # Of several kinds, the first is log p.
