"""Text to token ids and back: through a tokenizer, or ids written as text."""

from collections.abc import Sequence
import os
import re
from typing import NamedTuple, Protocol

import numpy as np

from saxml_ext.common import errors
from saxml_ext.common import storage
from saxml_ext.common.security import roots
from saxml_ext.server.vocabulary import growing_text
from saxml_ext.server.vocabulary import sentencepiece_codec
from saxml_ext.server.vocabulary import tokenizer_codec

_IDS = re.compile(r' *[0-9]+ *(?:, *[0-9]+ *)*', re.ASCII)
# As the converter calls a tokenizer, and as SentencePiece's users do.
_FILES = ('tokenizer.json', 'tokenizer.model')


class Codec(Protocol):
  """Both directions between a text and its token ids."""

  def encode(self, text: str) -> np.ndarray:
    """Ids of a text, [T] int32; raises errors.InvalidArgument."""

  def decode(self, ids: Sequence[int]) -> str:
    """Text of some ids."""

  def growing(self) -> growing_text.GrowingText:
    """The same text, as it becomes certain while ids come."""

  def piece(self, token: int) -> bytes:
    """What a token of any place in a text has in it; b'' if it is silent."""


class IdCodec:
  """The wire of tokenized models: "12,7,99"."""

  def __init__(self, vocab_size: int):
    self._vocab_size = vocab_size

  def encode(self, text: str) -> np.ndarray:
    """Parses comma-separated ids.

    Raises:
      errors.InvalidArgument: the text is something else, or an id is not in
        the vocabulary.
    """
    if not _is_plain(text) and not _IDS.fullmatch(text):
      raise errors.InvalidArgument(
        'this model takes token ids separated by commas, such as "12,7,99",'
        f' but got {_shortened(text)}; tokenize the text first, or ask a'
        ' model with text input'
      )
    # A tenth of the time of split() and int(), and prompts are long. What is
    # too large for 64 bits becomes their largest number.
    ids = np.fromstring(text, dtype=np.int64, sep=',')
    largest = int(ids.max())
    if largest >= self._vocab_size:
      raise errors.InvalidArgument(
        f'token id {largest} is not in the vocabulary of {self._vocab_size} ids'
      )
    return ids.astype(np.int32)

  def decode(self, ids: Sequence[int]) -> str:
    """Writes ids, Python's own numbers, with commas between them."""
    # A list writes all of its numbers in one go: faster than join and map.
    return str(list(ids))[1:-1].replace(' ', '')

  def growing(self) -> growing_text.GrowingText:
    """The same, an id at a time."""
    return growing_text.Ids()

  def piece(self, token: int) -> bytes:
    """An id in digits."""
    return str(token).encode()


def _is_plain(text: str) -> bool:
  """Whether a text is ids and commas, without blanks, as nearly all are.

  A fraction of the regular expression's time.
  """
  if not text.isascii() or text.encode().translate(None, b'0123456789,'):
    return False
  return bool(text) and text[0] != ',' and text[-1] != ',' and ',,' not in text


class Codecs(NamedTuple):
  """Those of one model.

  Attributes:
    input: from a request's text to ids.
    output: from ids to an answer's text.
    vocab_size: ids from 0 to below it are the model's.
    words: the model's tokenizer, which a model that takes and gives ids may
      have all the same; None: there is none.
  """

  input: Codec
  output: Codec
  vocab_size: int
  words: Codec | None = None


def load_tokenizer(vocabulary_path: str | None, checkpoint_path: str) -> Codec:
  """Loads the tokenizer of a model with text input or output.

  Args:
    vocabulary_path: a tokenizer.json, a SentencePiece model or the directory
      of one of them; None looks in the checkpoint's directory and in the one
      above.
    checkpoint_path: of the model.

  Raises:
    errors.InvalidArgument: there is no such file, or it cannot be read.
    errors.PermissionDenied: this server may not load from there.
  """
  found = find_tokenizer(vocabulary_path, checkpoint_path)
  if found is None:
    candidates = ', '.join(_candidates(vocabulary_path, checkpoint_path))
    raise errors.InvalidArgument(
      f'the model takes or gives text, but none of {candidates} is'
      ' a file: publish it with VOCABULARY_PATH="<tokenizer.json or .model>", or'
      ' use a tokenized model'
    )
  return found


def find_tokenizer(
  vocabulary_path: str | None, checkpoint_path: str
) -> Codec | None:
  """As `load_tokenizer`; None if there is no such file."""
  for path in _candidates(vocabulary_path, checkpoint_path):
    if storage.is_file(path):
      return _read(path)
  return None


def _read(path: str) -> Codec:
  data = storage.read_bytes(path)
  if not path.endswith('.json') and not data.startswith(b'{'):
    return sentencepiece_codec.SentencePieceCodec(data, path)
  return tokenizer_codec.TokenizerCodec.of(data, path)


def _candidates(vocabulary_path: str | None, checkpoint_path: str) -> list[str]:
  if vocabulary_path is not None:
    # Not even whether there is a file is told of places outside.
    roots.check(vocabulary_path, 'vocabulary')
    return [vocabulary_path, *_in(vocabulary_path)]
  base = checkpoint_path.rstrip('/')
  above = os.path.dirname(base)
  found = [*_in(base), *(_in(above) if above else ())]
  return [path for path in found if roots.allows(path)]


def _in(directory: str) -> list[str]:
  return [os.path.join(directory, name) for name in _FILES]


def _shortened(text: str) -> str:
  return repr(text if len(text) <= 40 else text[:40] + '...')
