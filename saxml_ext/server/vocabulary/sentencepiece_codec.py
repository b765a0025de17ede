"""Converts text to token ids and back with a SentencePiece model.

The conventions of `encode` and `decode` are those of Sax's LMTokenizer. No ids
are added before or after the ids of a text; the service adds the start id of
the serving params. A text that is decoded without its prompt loses the blank
before its first word. An id outside of the vocabulary stands for the unknown
piece. Checkpoints of Hugging Face add tokens to the model, see
`special_tokens`. A text is split at them before the model sees it.
"""

from collections.abc import Sequence
import dataclasses

from google.protobuf import message
import numpy as np
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from saxml_ext.common import errors
from saxml_ext.common import special_tokens
from saxml_ext.server.vocabulary import charsmap
from saxml_ext.server.vocabulary import growing_text

# A million pieces, which take a second or two to load. The largest vocabularies
# in use have 256,000 pieces and 5 MiB.
_LIMIT = 16 << 20
_BLANK = '\u2581'
_Piece = sentencepiece_model_pb2.ModelProto.SentencePiece


class SentencePieceCodec:
  """A vocabulary of the `sentencepiece` library."""

  def __init__(
    self,
    data: bytes,
    path: str,
    declared: special_tokens.Declared = special_tokens.NOTHING,
  ):
    """Loads a model.

    Args:
      data: The contents of the file.
      path: The path of the file, for messages.
      declared: The declarations beside the file.

    Raises:
      errors.InvalidArgument: The file is not a model, or it is damaged.
    """
    self._model = _parsed(data, path)
    self._declared = declared
    self._processors: dict[
      tuple[bool, bool], sentencepiece.SentencePieceProcessor
    ] = {}
    try:
      self._processor = self._variant(True, False)
    except (RuntimeError, OSError) as e:  # Bad files raise either.
      raise _refused(path, e) from e
    self._size = self._processor.GetPieceSize()
    self._unknown = self._processor.unk_id()
    # Such rules apply to whole texts: the end of a text may change the text
    # before it.
    self._is_rewritten = bool(
      self._model.denormalizer_spec.precompiled_charsmap
    )
    self._anchor = [
      i
      for i, piece in enumerate(self._model.pieces)
      if piece.type == _Piece.NORMAL and piece.piece.strip(_BLANK)
    ][:1]
    self._added = self._added_tokens()
    # The model finds its user-defined pieces itself, unless they are literal.
    self._tokens = {
      i: special_tokens.Token(piece.piece, i, piece.type == _Piece.CONTROL)
      for i, piece in enumerate(self._model.pieces)
      if piece.type == _Piece.CONTROL or _is_defined_mark(piece)
    } | self._added
    self._splitter = special_tokens.Splitter(self._added.values())
    self._all_splitter = special_tokens.Splitter(self._tokens.values())

  def encode(self, text: str) -> np.ndarray:
    """Returns the ids of a text, [T] int32; control pieces are not parsed."""
    return self._encode(*self._splitter.split(text))

  def encode_prompt(
    self, text: str, literal: Sequence[special_tokens.Span] = ()
  ) -> np.ndarray:
    """Returns the ids of a text, [T] int32, see `codec.Codec`."""
    return self._encode(*self._all_splitter.split(text, literal))

  def _encode(
    self, texts: Sequence[str], tokens: Sequence[int], has_literal: bool
  ) -> np.ndarray:
    ids = self._variant(True, has_literal).EncodeAsIds(texts[0])
    for token, text in zip(tokens, texts[1:]):
      later = self._variant(self._declared.prefixes_all, has_literal)
      ids += [token, *later.EncodeAsIds(text)]
    return np.array(ids, np.int32)

  def decode(self, ids: Sequence[int], special: bool = False) -> str:
    """Returns the text of some ids.

    Bytes that do not form a whole character, for example at the end of an
    answer, become U+FFFD.

    Args:
      ids: The ids.
      special: True to include the special tokens.
    """
    texts: list[str] = []
    run: list[int] = []
    for token in ids:
      text = self._text(int(token), special)
      if text is None:
        run.append(int(token) if 0 <= token < self._size else self._unknown)
      elif text:
        texts += [self._decode_run(run, bool(texts)), text]
        run = []
    return ''.join([*texts, self._decode_run(run, bool(texts))])

  def _text(self, token: int, special: bool) -> str | None:
    """Returns the text of a token that the model does not decode, or None."""
    added = self._tokens.get(token)
    if added is None:
      return None
    if special or not added.special:
      return added.text
    # The model decodes its own control pieces, which end runs of bytes.
    return '' if token in self._added else None

  def _decode_run(self, run: Sequence[int], is_continued: bool) -> str:
    """Decodes pieces; the model drops the blank at the beginning of a text."""
    if not run:
      return ''
    if not is_continued:
      return self._processor.DecodeIds(list(run))
    before = self._processor.DecodeIds(self._anchor)
    return self._processor.DecodeIds([*self._anchor, *run])[len(before) :]

  def growing(self, context: Sequence[int] = ()) -> growing_text.GrowingText:
    """Returns an object that decodes one id at a time after a context."""
    if self._is_rewritten:
      return growing_text.Whole(self.decode, context)
    return growing_text.Windowed(self.decode, self._is_open, context)

  def piece(self, token: int) -> bytes:
    """Returns a token's bytes within a text; b'' for special tokens."""
    text = self._text(token, special=False)
    if text is not None:
      return text.encode()
    processor = self._processor
    known = token if 0 <= token < self._size else self._unknown
    if processor.IsControl(known):
      return b''
    piece = processor.IdToPiece(known)
    if processor.IsByte(known):
      return bytes([int(piece[1:-1], 16)])  # For example "<0xE2>".
    if processor.IsUnknown(known):
      return processor.DecodeIds([known]).encode()
    return piece.replace(_BLANK, ' ').encode()

  def start_id(self) -> int | None:
    """Returns the id of the control piece that begins a text, or None.

    Raises:
      errors.InvalidArgument: The files declare an id after a text.
    """
    if self._declared.adds_end:
      raise errors.InvalidArgument(
        'add_eos_token of tokenizer_config.json is true, so each prompt would end'
        ' with the end token. Only one id before a text is supported. Set it to'
        ' false, SOS_ID to the start id, or PREPEND_SOS=false for no id.'
      )
    start = self._processor.bos_id()
    return start if self._declared.adds_start and start >= 0 else None

  def _is_open(self, token: int, text: str) -> bool:
    # A run of bytes is decoded from left to right. U+FFFD stands for bytes that
    # do not form a character, or not yet.
    is_byte = 0 <= token < self._size and self._processor.IsByte(token)
    return is_byte and text.endswith('\ufffd')

  def _added_tokens(self) -> dict[int, special_tokens.Token]:
    """Returns the declared tokens by id."""
    ids = {piece.piece: i for i, piece in enumerate(self._model.pieces)}
    added: dict[int, special_tokens.Token] = {}
    for token in self._declared.tokens:
      i = ids.get(token.text) if token.id is None else token.id
      if i is None:  # transformers appends such a token.
        i = max([len(self._model.pieces) - 1, *added]) + 1
      ids.setdefault(token.text, i)
      added.setdefault(i, dataclasses.replace(token, id=i))
    return added

  def _variant(
    self, prefixed: bool, literal: bool
  ) -> sentencepiece.SentencePieceProcessor:
    """Returns the model for a part of a text.

    Args:
      prefixed: True if the part gets the blank that begins a text.
      literal: True if the part may have marks that are ordinary text.
    """
    literal = literal and any(map(_is_defined_mark, self._model.pieces))
    if (prefixed, literal) not in self._processors:
      model = sentencepiece_model_pb2.ModelProto()
      model.CopyFrom(self._model)
      model.normalizer_spec.add_dummy_prefix &= prefixed
      for piece in model.pieces if literal else ():
        if _is_defined_mark(piece):
          piece.type = _Piece.UNUSED
      processor = sentencepiece.SentencePieceProcessor()
      processor.LoadFromSerializedProto(model.SerializeToString())
      self._processors[prefixed, literal] = processor
    return self._processors[prefixed, literal]


def _is_defined_mark(
  piece: sentencepiece_model_pb2.ModelProto.SentencePiece,
) -> bool:
  return (
    piece.type == _Piece.USER_DEFINED
    and special_tokens.Token(piece.piece, special=False).is_mark
  )


def _parsed(data: bytes, path: str) -> sentencepiece_model_pb2.ModelProto:
  """Parses a model; raises errors.InvalidArgument if it could do harm."""
  if len(data) > _LIMIT:
    raise errors.InvalidArgument(
      f'{path} has {len(data)} bytes, above the limit of {_LIMIT} for a'
      ' SentencePiece vocabulary'
    )
  try:
    model = sentencepiece_model_pb2.ModelProto.FromString(data)
    charsmap.check(model.normalizer_spec.precompiled_charsmap)
    charsmap.check(model.denormalizer_spec.precompiled_charsmap)
  except (message.DecodeError, ValueError) as e:
    raise _refused(path, e) from e
  return model


def _refused(path: str, reason: Exception) -> errors.InvalidArgument:
  return errors.InvalidArgument(
    f'{path} is not a valid SentencePiece model ({reason}). Publish with'
    ' VOCABULARY_PATH="<a .model or a tokenizer.json>".'
  )
