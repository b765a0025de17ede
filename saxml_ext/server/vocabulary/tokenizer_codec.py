"""Converts text to token ids and back with a tokenizer.json.

The decoder determines how a text grows, see `growing_text`. With byte-level BPE
(GPT-2, GPT-J), each whole character is passed on at once. With byte fallback
(Llama), a run of bytes is held back until it has ended. With any other decoder,
the text is passed on at the end.
"""

from collections.abc import Mapping, Sequence
import functools
import json
import re
import secrets
from typing import Any

import numpy as np
import tokenizers

from saxml_ext.common import errors
from saxml_ext.common import special_tokens
from saxml_ext.server.vocabulary import growing_text

_BYTE = re.compile(r'<0x([0-9A-F]{2})>')
# Decoders that process one token at a time, except for runs of byte pieces and
# the first blank.
_LOCAL = frozenset({'Replace', 'ByteFallback', 'Fuse', 'Strip', 'Metaspace'})


def _characters() -> dict[str, int]:
  """Returns the byte for each printable stand-in of byte-level BPE.

  GPT-2 chose the stand-ins. Printable characters of Latin-1 stand for
  themselves. U+0100 and its successors stand for the other bytes in ascending
  order.
  """
  printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
  unprintable = [b for b in range(256) if b not in printable]
  stand_ins = {chr(b): b for b in printable}
  return stand_ins | {chr(256 + i): b for i, b in enumerate(unprintable)}


_CHARACTERS = _characters()
# A text that shows which ids the post-processor of a tokenizer adds.
_SAMPLE = 'a'


class TokenizerCodec:
  """A tokenizer of the `tokenizers` library."""

  def __init__(
    self,
    tokenizer: tokenizers.Tokenizer,
    declared: special_tokens.Declared = special_tokens.NOTHING,
  ):
    """Wraps a tokenizer; the declared tokens determine which are special."""
    self._tokenizer = tokenizer
    # Files keep the settings of their training, which transformers does not
    # apply either.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    decoder = json.loads(tokenizer.to_str())['decoder']
    self._is_bytes = bool(decoder) and decoder['type'] == 'ByteLevel'
    self._is_local = _is_local(decoder)
    special = {token.text for token in declared.tokens if token.special}
    added = tokenizer.get_added_tokens_decoder()
    tokenizer.add_special_tokens(
      [t for t in added.values() if t.content in special and not t.special]
    )
    # Like transformers, appends the declared tokens that the file lacks.
    known = {token.content for token in added.values()}
    for token in declared.tokens:
      if token.text not in known:
        known.add(token.text)
        new = tokenizers.AddedToken(
          token.text,
          lstrip=token.lstrip,
          rstrip=token.rstrip,
          normalized=not token.special,
          special=token.special,
        )
        tokenizer.add_tokens([new])
    tokens = [
      special_tokens.Token(t.content, i, t.special, t.lstrip, t.rstrip)
      for i, t in tokenizer.get_added_tokens_decoder().items()
    ]
    self._special = {token.id for token in tokens if token.special}
    self._marks = [t for t in tokens if t.special or t.is_mark]
    self._splitter = special_tokens.Splitter(self._marks)

  @classmethod
  def from_bytes(
    cls,
    data: bytes,
    path: str,
    declared: special_tokens.Declared = special_tokens.NOTHING,
  ) -> 'TokenizerCodec':
    """Reads a tokenizer.json.

    Args:
      data: The contents of the file.
      path: The path of the file, for messages.
      declared: The declarations beside the file.

    Raises:
      errors.InvalidArgument: The file is not a valid tokenizer.
    """
    try:
      return cls(tokenizers.Tokenizer.from_buffer(data), declared)
    except Exception as e:  # The library raises Exception.
      raise errors.InvalidArgument(
        f'the tokenizers library cannot read {path}: {e}'
      ) from e

  def encode(self, text: str) -> np.ndarray:
    """Returns the ids of a text, [T] int32, with the special tokens in it."""
    encoding = self._tokenizer.encode(text, add_special_tokens=False)
    return np.array(encoding.ids, np.int32)

  def encode_prompt(
    self, text: str, literal: Sequence[special_tokens.Span] = ()
  ) -> np.ndarray:
    """Returns the ids of a text, [T] int32, see `codec.Codec`."""
    texts, tokens, has_literal = self._splitter.split(text, literal)
    if not has_literal:
      return self.encode(text)
    # A mark, which no text contains, stands for each of the other tokens. So
    # the library sees the text as a whole.
    plain, mark, mark_id = self._plain
    left = iter(tokens)
    ids: list[int] = []
    for i in plain.encode(mark.join(texts), add_special_tokens=False).ids:
      if i == mark_id:
        ids.append(next(left))
      elif i in self._special:
        # Some models know the text as a word. Then its letters are encoded.
        for letter in plain.id_to_token(i):
          spelled = plain.encode(mark + letter, add_special_tokens=False).ids
          ids += [j for j in spelled if j != mark_id]
      else:
        ids.append(i)
    return np.array(ids, np.int32)

  @functools.cached_property
  def _plain(self) -> tuple[tokenizers.Tokenizer, str, int]:
    """A tokenizer that finds only the mark, the mark, and its id."""
    plain = tokenizers.Tokenizer.from_str(self._tokenizer.to_str())
    plain.add_special_tokens([token.text for token in self._marks])
    mark = f'<{secrets.token_hex(16)}>'
    plain.add_tokens([tokenizers.AddedToken(mark, normalized=False)])
    plain.encode_special_tokens = True
    return plain, mark, plain.token_to_id(mark)

  def decode(self, ids: Sequence[int], special: bool = False) -> str:
    """Returns the text of the ids, with special tokens if `special` is set."""
    return self._tokenizer.decode(list(ids), skip_special_tokens=not special)

  def growing(self, context: Sequence[int] = ()) -> growing_text.GrowingText:
    """Returns an object that decodes one id at a time after a context."""
    if self._is_bytes:
      return growing_text.Bytes(self.piece, context)
    if self._is_local:
      return growing_text.Windowed(self.decode, self._is_open, context)
    return growing_text.Whole(self.decode, context)

  def piece(self, token: int) -> bytes:
    """Returns a token's bytes within a text; b'' for special tokens."""
    piece = self._tokenizer.id_to_token(token)
    if piece is None or token in self._special:
      return b''
    if self._is_bytes:
      known = [_CHARACTERS.get(character) for character in piece]
      if None not in known:
        return bytes(b for b in known if b is not None)
    if match := _BYTE.fullmatch(piece):
      return bytes([int(match[1], 16)])
    # The decoder may treat the first token of a text differently.
    text = self.decode([*self._anchor, token])
    return text[len(self.decode(self._anchor)) :].encode()

  @functools.cached_property
  def _anchor(self) -> Sequence[int]:
    """An ordinary token for the decoder to process before another one."""
    for i in range(self._tokenizer.get_vocab_size()):
      is_byte = _BYTE.fullmatch(self._tokenizer.id_to_token(i) or '')
      if not is_byte and self.decode([i]).strip():
        return [i]
    return []

  def start_id(self) -> int | None:
    """Returns the id that the post-processor adds before a text, or None.

    Raises:
      errors.InvalidArgument: It adds several ids, or ids after a text.
    """
    plain = self.encode(_SAMPLE).tolist()
    whole = self._tokenizer.encode(_SAMPLE, add_special_tokens=True).ids
    if whole == plain:
      return None
    if plain and whole[1:] == plain:
      return whole[0]
    raise errors.InvalidArgument(
      f'the tokenizer encodes {_SAMPLE!r} as {whole}, which is {plain} without'
      ' special tokens. Only one id before a text is supported. Set SOS_ID to'
      ' this id, or PREPEND_SOS=false for no id.'
    )

  def _is_open(self, token: int, text: str) -> bool:
    del text
    # A run of bytes is decoded as a whole, without the special tokens inside
    # it.
    piece = self._tokenizer.id_to_token(token)
    return token in self._special or bool(_BYTE.fullmatch(piece or ''))


def _is_local(decoder: Mapping[str, Any] | None) -> bool:
  """Returns True if a decoder processes one token at a time, see `_LOCAL`."""
  if not decoder:
    return False
  if decoder['type'] == 'Sequence':
    kinds = [part['type'] for part in decoder['decoders']]
    # After Fuse, a text may be replaced that several tokens form.
    fused = kinds.index('Fuse') if 'Fuse' in kinds else len(kinds)
    return 'Replace' not in kinds[fused:] and all(
      map(_is_local, decoder['decoders'])
    )
  at_the_end = decoder['type'] == 'Strip' and decoder['stop']
  return decoder['type'] in _LOCAL and not at_the_end
