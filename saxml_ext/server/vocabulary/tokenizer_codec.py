"""Text to token ids and back through a tokenizer.json.

Its decoder decides how texts grow, see `growing_text`: byte-level BPE (GPT-2,
GPT-J) tells each whole character at once, pieces with bytes to fall back on
(Llama) hold back a run of bytes until it has ended, and any other decoder's
text is told at the end.
"""

from collections.abc import Mapping, Sequence
import json
import re
from typing import Any

import numpy as np
import tokenizers

from saxml_ext.common import errors
from saxml_ext.server.vocabulary import growing_text

_BYTE = re.compile(r'<0x([0-9A-F]{2})>')
_BLANK = '\u2581'
# Decoders that look at one token at a time, runs of byte pieces and the first
# blank excepted.
_LOCAL = frozenset({'Replace', 'ByteFallback', 'Fuse', 'Strip', 'Metaspace'})


def _characters() -> dict[str, int]:
  """Byte-level BPE's printable stand-in for each byte, as GPT-2 chose them.

  Printable characters of Latin-1 stand for themselves, and U+0100 and its
  successors for the other bytes in their order.
  """
  printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
  others = [b for b in range(256) if b not in printable]
  stand_ins = {chr(b): b for b in printable}
  return stand_ins | {chr(256 + i): b for i, b in enumerate(others)}


_CHARACTERS = _characters()


class TokenizerCodec:
  """A tokenizer of the `tokenizers` library."""

  def __init__(self, tokenizer: tokenizers.Tokenizer):
    """Takes a tokenizer."""
    self._tokenizer = tokenizer
    decoder = json.loads(tokenizer.to_str())['decoder']
    self._is_bytes = bool(decoder) and decoder['type'] == 'ByteLevel'
    self._is_local = _is_local(decoder)
    self._special = {
      i for i, t in tokenizer.get_added_tokens_decoder().items() if t.special
    }

  @classmethod
  def of(cls, data: bytes, path: str) -> 'TokenizerCodec':
    """Reads a tokenizer.json.

    Args:
      data: contents of the file.
      path: its name, for messages.

    Raises:
      errors.InvalidArgument: it is something else.
    """
    try:
      return cls(tokenizers.Tokenizer.from_buffer(data))
    except Exception as e:  # The library raises nothing narrower.
      raise errors.InvalidArgument(
        f'{path} is no tokenizer that the tokenizers library reads: {e}'
      ) from e

  def encode(self, text: str) -> np.ndarray:
    """Tokenizes; no special tokens are added."""
    encoding = self._tokenizer.encode(text, add_special_tokens=False)
    return np.array(encoding.ids, np.int32)

  def decode(self, ids: Sequence[int]) -> str:
    """Text of the ids, special tokens left out."""
    return self._tokenizer.decode(list(ids), skip_special_tokens=True)

  def growing(self) -> growing_text.GrowingText:
    """A text that grows by an id at a time."""
    if self._is_bytes:
      return growing_text.Bytes(self.piece)
    if self._is_local:
      return growing_text.Windowed(self.decode, self._is_open)
    return growing_text.Whole(self.decode)

  def piece(self, token: int) -> bytes:
    """The bytes of a token in a text; none of special ones."""
    piece = self._tokenizer.id_to_token(token)
    if piece is None or token in self._special:
      return b''
    if self._is_bytes:
      known = [_CHARACTERS.get(character) for character in piece]
      if None not in known:
        return bytes(b for b in known if b is not None)
    if found := _BYTE.fullmatch(piece):
      return bytes([int(found[1], 16)])
    return piece.replace(_BLANK, ' ').encode()

  def _is_open(self, token: int, text: str) -> bool:
    del text
    # A run of bytes is read as a whole, special tokens within it left out.
    piece = self._tokenizer.id_to_token(token)
    return token in self._special or bool(_BYTE.fullmatch(piece or ''))


def _is_local(decoder: Mapping[str, Any] | None) -> bool:
  """Whether a decoder reads as `_LOCAL` says."""
  if not decoder:
    return False
  if decoder['type'] == 'Sequence':
    return all(map(_is_local, decoder['decoders']))
  at_the_end = decoder['type'] == 'Strip' and decoder['stop']
  return decoder['type'] in _LOCAL and not at_the_end
