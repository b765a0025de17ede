"""Decodes answers that grow, without ever changing text that was sent.

The text of several ids is not the concatenation of the texts of each id. A
character may be split over several tokens, and the first blank may be dropped.
An incomplete character at the end is shown as U+FFFD until its rest arrives. So
a stream of the differences between two texts would have to change text that was
sent.

These classes take one id at a time and hold back text that may still change.
The concatenation of all parts is the text of all ids, see `codec.Codec.decode`.

An answer may continue a context, the last ids of its prompt. Then the parts are
what the answer adds to the text of the context. For example, the blank before
the first word is part of the answer.
"""

import codecs
from collections.abc import Callable, Sequence
from typing import Protocol


class GrowingText(Protocol):
  """The text of ids that arrive one at a time."""

  def push(self, token: int) -> str:
    """Takes the next id; returns the new text that will not change."""

  def finish(self) -> str:
    """Returns the rest of the text after the last id."""


class Ids:
  """Ids as text, such as "12,7,99"."""

  def __init__(self, context: Sequence[int] = ()):
    """Creates an empty text, which begins with a comma after a context."""
    self._has_one = bool(context)

  def push(self, token: int) -> str:
    comma = ',' if self._has_one else ''
    self._has_one = True
    return f'{comma}{token}'

  def finish(self) -> str:
    return ''


class Bytes:
  """The text of tokens that are UTF-8 bytes, as in byte-level BPE."""

  def __init__(
    self, piece: Callable[[int], bytes], context: Sequence[int] = ()
  ):
    """Creates an empty text; `piece` returns the bytes of a token."""
    self._piece = piece
    self._decoder = codecs.getincrementaldecoder('utf-8')('replace')
    for token in context:
      self._decoder.decode(piece(token))
    self._partial = '\ufffd' if self._decoder.getstate()[0] else ''

  def push(self, token: int) -> str:
    return self._new(self._decoder.decode(self._piece(token)))

  def finish(self) -> str:
    return self._new(self._decoder.decode(b'', True))

  def _new(self, text: str) -> str:
    if not text:
      return ''
    # An incomplete character of the context is not part of the answer.
    new = text.removeprefix(self._partial)
    self._partial = ''
    return new


class Windowed:
  """The text of tokens whose texts depend on a few neighbors.

  To get the text of the new ids, the text of a few earlier ids is decoded with
  them and then removed. So changes at the beginning of a text, such as a
  dropped blank, only affect the removed part.
  """

  def __init__(
    self,
    decode: Callable[[Sequence[int]], str],
    is_open: Callable[[int, str], bool],
    context: Sequence[int] = (),
  ):
    """Creates an empty text.

    Args:
      decode: A function that returns the text of some ids.
      is_open: A function that returns True if later ids may change the text. It
        gets the last id and the text so far, which may begin anywhere.
      context: The last ids before the text.
    """
    self._decode = decode
    self._is_open = is_open
    self._ids = list(context)  # Earlier ids, then new ones.
    self._before = len(self._ids)  # The number of earlier ids.
    text = decode(context)
    known = text
    # The answer may complete the last character of the context.
    if context and is_open(context[-1], text):
      known = text.rstrip('\ufffd')
    self._sent = len(known)  # The length of their text.
    self._partial = text[len(known) :]

  def push(self, token: int) -> str:
    self._ids.append(token)
    text = self._decode(self._ids)
    if self._is_open(token, text):
      return ''
    return self._tell(text)

  def finish(self) -> str:
    return self._tell(self._decode(self._ids)) if self._ids else ''

  def _tell(self, text: str) -> str:
    new = text[self._sent :].removeprefix(self._partial)
    self._partial = ''
    # The new ids are enough context for the next ones. If they have no text,
    # earlier ids are kept, because the next text would be treated as the
    # beginning.
    alone = self._decode(self._ids[self._before :])
    if alone:
      del self._ids[: self._before]
    self._before = len(self._ids)
    self._sent = len(alone or text)
    return new


class Whole:
  """The text of tokens with unknown rules, which is decoded only at the end."""

  def __init__(
    self, decode: Callable[[Sequence[int]], str], context: Sequence[int] = ()
  ):
    """Creates an empty text; `decode` returns the text of some ids."""
    self._decode = decode
    self._ids = list(context)
    self._sent = len(decode(context))

  def push(self, token: int) -> str:
    self._ids.append(token)
    return ''

  def finish(self) -> str:
    return self._decode(self._ids)[self._sent :]
