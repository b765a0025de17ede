"""Converts text to token ids and back with a SentencePiece model.

The conventions are those of Sax's LMTokenizer. No ids are added before or after
the ids of a text; the service adds the start id of the serving params. An answer
is decoded without its prompt, which drops the blank before its first word. An
id outside of the vocabulary stands for the unknown piece.
"""

from collections.abc import Sequence

from google.protobuf import message
import numpy as np
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from saxml_ext.common import errors
from saxml_ext.server.vocabulary import charsmap
from saxml_ext.server.vocabulary import growing_text

# A million pieces, which take a second or two to load. The largest vocabularies
# in use have 256,000 pieces and 5 MiB.
_LIMIT = 16 << 20
_BLANK = '\u2581'


class SentencePieceCodec:
  """A vocabulary of the `sentencepiece` library."""

  def __init__(self, data: bytes, path: str, adds_start: bool = True):
    """Loads a model.

    Args:
      data: The contents of the file.
      path: The path of the file, for messages.
      adds_start: True if texts begin with the control piece <s>, if any.

    Raises:
      errors.InvalidArgument: The file is not a model, or it is damaged.
    """
    _check(data, path)
    self._processor = sentencepiece.SentencePieceProcessor()
    try:
      self._processor.LoadFromSerializedProto(data)
    except (RuntimeError, OSError) as e:  # Bad files raise either.
      raise _refused(path, e) from e
    self._adds_start = adds_start
    self._size = self._processor.GetPieceSize()
    self._unknown = self._processor.unk_id()
    # Such rules apply to whole texts: the end of a text may change the text
    # before it.
    self._is_rewritten = _rewrites(data)

  def encode(self, text: str) -> np.ndarray:
    """Returns the ids of a text, [T] int32; control pieces are not parsed."""
    return np.array(self._processor.EncodeAsIds(text), np.int32)

  def decode(self, ids: Sequence[int]) -> str:
    """Returns the text of some ids, without control pieces.

    Bytes that do not form a whole character, for example at the end of an
    answer, become U+FFFD.
    """
    known = [int(i) if 0 <= i < self._size else self._unknown for i in ids]
    return self._processor.DecodeIds(known)

  def growing(self) -> growing_text.GrowingText:
    """Returns an object that decodes one id at a time."""
    if self._is_rewritten:
      return growing_text.Whole(self.decode)
    return growing_text.Windowed(self.decode, self._is_open)

  def piece(self, token: int) -> bytes:
    """Returns a token's bytes within a text; b'' for control pieces."""
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
    """Returns the id of the control piece that begins a text, or None."""
    start = self._processor.bos_id()
    return start if self._adds_start and start >= 0 else None

  def _is_open(self, token: int, text: str) -> bool:
    # A run of bytes is decoded from left to right. U+FFFD stands for bytes that
    # do not form a character, or not yet.
    is_byte = 0 <= token < self._size and self._processor.IsByte(token)
    return is_byte and text.endswith('\ufffd')


def _rewrites(data: bytes) -> bool:
  model = sentencepiece_model_pb2.ModelProto.FromString(data)
  return bool(model.denormalizer_spec.precompiled_charsmap)


def _check(data: bytes, path: str) -> None:
  """Raises errors.InvalidArgument for data that could harm the library."""
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


def _refused(path: str, reason: Exception) -> errors.InvalidArgument:
  return errors.InvalidArgument(
    f'{path} is not a valid SentencePiece model ({reason}). Publish with'
    ' VOCABULARY_PATH="<a .model or a tokenizer.json>".'
  )
