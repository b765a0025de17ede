"""Texts of answers that grow: what is told of them is never taken back.

The text of some ids is not the texts of each, one after the other: a character
may be spread over several tokens, the first blank may be dropped, and an
incomplete character at the end shows as U+FFFD until its rest comes. So a
stream that sent the difference of two texts would have to change what it has
said. Here an id is taken at a time, and what may still change is held back:
what was told, joined, is the text of all ids, see `codec.Codec.decode`.
"""

import codecs
from collections.abc import Callable, Sequence
from typing import Protocol


class GrowingText(Protocol):
  """The text of ids that come one at a time."""

  def push(self, token: int) -> str:
    """Takes the next id; returns what its text has for certain more."""

  def finish(self) -> str:
    """Returns the rest, as no more ids come."""


class Ids:
  """Ids as text, "12,7,99"."""

  def __init__(self):
    self._has_one = False

  def push(self, token: int) -> str:
    comma = ',' if self._has_one else ''
    self._has_one = True
    return f'{comma}{token}'

  def finish(self) -> str:
    return ''


class Bytes:
  """Tokens that are bytes of UTF-8, as byte-level BPE has them."""

  def __init__(self, piece: Callable[[int], bytes]):
    """`piece` gives a token's bytes."""
    self._piece = piece
    self._decoder = codecs.getincrementaldecoder('utf-8')('replace')

  def push(self, token: int) -> str:
    return self._decoder.decode(self._piece(token))

  def finish(self) -> str:
    return self._decoder.decode(b'', True)


class Windowed:
  """Tokens whose texts depend on a few neighbours.

  The text of a few ids before the new ones is cut off that of all of them, so
  that what is done to the beginning of a text (a blank dropped) is done to the
  part that is cut off.
  """

  def __init__(
    self,
    decode: Callable[[Sequence[int]], str],
    is_open: Callable[[int, str], bool],
  ):
    """Starts empty.

    Args:
      decode: text of some ids.
      is_open: whether ids that come later may change the text that ends with a
        token; gets that id, and the text so far, which begins anywhere.
    """
    self._decode = decode
    self._is_open = is_open
    self._ids: list[int] = []  # Those before the new ones, and the new ones.
    self._before = 0  # How many of them are not new.
    self._told = 0  # Length of the text of those.

  def push(self, token: int) -> str:
    self._ids.append(token)
    text = self._decode(self._ids)
    if self._is_open(token, text):
      return ''
    return self._tell(text)

  def finish(self) -> str:
    return self._tell(self._decode(self._ids)) if self._ids else ''

  def _tell(self, text: str) -> str:
    new = text[self._told :]
    # The new ids are enough to go on from, unless they are without text: then
    # what comes next would be taken for the beginning.
    alone = self._decode(self._ids[self._before :])
    if alone:
      del self._ids[: self._before]
    self._before = len(self._ids)
    self._told = len(alone or text)
    return new


class Whole:
  """Tokens of which nothing is known: all is told at the end."""

  def __init__(self, decode: Callable[[Sequence[int]], str]):
    """`decode` gives the text of some ids."""
    self._decode = decode
    self._ids: list[int] = []

  def push(self, token: int) -> str:
    self._ids.append(token)
    return ''

  def finish(self) -> str:
    return self._decode(self._ids)
