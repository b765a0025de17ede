"""Converts text to token ids and back, with a tokenizer or as written ids."""

from collections.abc import Sequence
import json
import os
import re
from typing import Any, NamedTuple, Protocol

import numpy as np

from saxml_ext.common import errors
from saxml_ext.common import special_tokens
from saxml_ext.common import storage
from saxml_ext.common.security import roots
from saxml_ext.server.vocabulary import growing_text
from saxml_ext.server.vocabulary import sentencepiece_codec
from saxml_ext.server.vocabulary import tokenizer_codec

_IDS = re.compile(r' *[0-9]+ *(?:, *[0-9]+ *)*', re.ASCII)
# A line of a tiktoken file: a token in base64, and its id.
_TIKTOKEN = re.compile(rb'[A-Za-z0-9+/]+=* [0-9]+\n')
# The limit of a file. The largest known tokenizer.json has 33 MB.
_MAX_BYTES = 2**28
# The file names that the converter and users of SentencePiece give a tokenizer.
_FILES = ('tokenizer.json', 'tokenizer.model')


class Codec(Protocol):
  """Converts a text to token ids and back."""

  def encode(self, text: str) -> np.ndarray:
    """Returns the ids of a text, [T] int32; raises errors.InvalidArgument."""

  def encode_prompt(
    self, text: str, literal: Sequence[special_tokens.Span] = ()
  ) -> np.ndarray:
    """Returns the ids of a text with all special tokens, [T] int32.

    Args:
      text: The text.
      literal: The ascending spans in which special tokens are plain text.
    """

  def decode(self, ids: Sequence[int], special: bool = False) -> str:
    """Returns the text of some ids, with special tokens if `special` is set."""

  def growing(self, context: Sequence[int] = ()) -> growing_text.GrowingText:
    """Returns an object that decodes one id at a time after a context."""

  def piece(self, token: int) -> bytes:
    """Returns a token's bytes within a text; b'' if it has no text."""

  def start_id(self) -> int | None:
    """Returns the id that the tokenizer adds before a text, or None.

    Raises:
      errors.InvalidArgument: It adds several ids, or ids after a text.
    """


class IdCodec:
  """The text format of tokenized models, such as "12,7,99"."""

  def __init__(self, vocab_size: int):
    self._vocab_size = vocab_size

  def encode(self, text: str) -> np.ndarray:
    """Parses comma-separated ids.

    Raises:
      errors.InvalidArgument: The text is not a list of ids, or an id is not in
        the vocabulary.
    """
    if not _is_plain(text) and not _IDS.fullmatch(text):
      raise errors.InvalidArgument(
        'this model takes token ids separated by commas, such as "12,7,99",'
        f' but got {_shortened(text)}. Tokenize the text first, or use a model'
        ' with text input.'
      )
    # For long prompts, np.fromstring takes a tenth of the time of split() and
    # int(). It converts numbers above 64 bits to the largest one.
    ids = np.fromstring(text, dtype=np.int64, sep=',')
    largest = int(ids.max())
    if largest >= self._vocab_size:
      raise errors.InvalidArgument(
        f'token id {largest} is not in the vocabulary of {self._vocab_size} ids'
      )
    return ids.astype(np.int32)

  def encode_prompt(
    self, text: str, literal: Sequence[special_tokens.Span] = ()
  ) -> np.ndarray:
    """Parses ids like `encode`, because they contain no special tokens."""
    del literal
    return self.encode(text)

  def decode(self, ids: Sequence[int], special: bool = False) -> str:
    """Returns the ids, which must be Python numbers, separated by commas."""
    del special
    # A list writes all of its numbers at once, which is faster than join and
    # map.
    return str(list(ids))[1:-1].replace(' ', '')

  def growing(self, context: Sequence[int] = ()) -> growing_text.GrowingText:
    """Returns an object that writes one id at a time."""
    return growing_text.Ids(context)

  def piece(self, token: int) -> bytes:
    """Returns the digits of an id."""
    return str(token).encode()

  def start_id(self) -> None:
    """Returns None, because written ids include a start id."""


def _is_plain(text: str) -> bool:
  """Returns True if a text has only ids and commas, without blanks.

  This holds for nearly all texts. The check takes a fraction of the time of the
  regular expression.
  """
  if not text.isascii() or text.encode().translate(None, b'0123456789,'):
    return False
  return bool(text) and text[0] != ',' and text[-1] != ',' and ',,' not in text


class Codecs(NamedTuple):
  """The codecs of one model.

  Attributes:
    input: The codec from a request's text to ids.
    output: The codec from ids to an answer's text.
    vocab_size: The number of ids of the model.
    words: The model's tokenizer, or None. A model with ids as input and output
      may also have one.
  """

  input: Codec
  output: Codec
  vocab_size: int
  words: Codec | None = None


def load_tokenizer(vocabulary_path: str | None, checkpoint_path: str) -> Codec:
  """Loads the tokenizer of a model with text input or output.

  Args:
    vocabulary_path: The path of a tokenizer.json, a SentencePiece model or the
      directory of one of them. None searches the checkpoint's directory and its
      parent.
    checkpoint_path: The path of the model's checkpoint.

  Raises:
    errors.InvalidArgument: There is no such file, or it cannot be read.
    errors.PermissionDenied: This server may not load from the path.
  """
  tokenizer = find_tokenizer(vocabulary_path, checkpoint_path)
  if tokenizer is None:
    candidates = ', '.join(_candidates(vocabulary_path, checkpoint_path))
    raise errors.InvalidArgument(
      'the model needs a tokenizer, but none of these files exists:'
      f' {candidates}. Publish it with VOCABULARY_PATH="<tokenizer.json or'
      ' .model>", or use a tokenized model.'
    )
  return tokenizer


def find_tokenizer(
  vocabulary_path: str | None, checkpoint_path: str
) -> Codec | None:
  """Loads a tokenizer like `load_tokenizer`; returns None without a file."""
  for path in _candidates(vocabulary_path, checkpoint_path):
    if storage.is_file(path):
      return _read(path)
  return None


def _read(path: str) -> Codec:
  data = _bytes(path)
  declared = special_tokens.declared(os.path.dirname(path), _object)
  if not path.endswith('.json') and not data.startswith(b'{'):
    if _TIKTOKEN.match(data):
      raise errors.InvalidArgument(
        f'{path} is a tiktoken file, as Meta publishes it with Llama 3. Replace'
        ' it with the tokenizer.json of the same model on Hugging Face.'
      )
    return sentencepiece_codec.SentencePieceCodec(data, path, declared)
  return tokenizer_codec.TokenizerCodec.from_bytes(data, path, declared)


def _bytes(path: str) -> bytes:
  try:
    return storage.read_bytes(path, _MAX_BYTES)
  except OSError as e:
    raise errors.InvalidArgument(
      f'{path} cannot be read: {e.strerror or e}. Replace it with the file of'
      ' the model.'
    ) from e


def _object(path: str) -> dict[str, Any]:
  """Returns the JSON object at a path, or {} if there is no file."""
  try:
    data = _bytes(path) if storage.is_file(path) else b'{}'
    return dict(json.loads(data).items())
  except (ValueError, AttributeError) as e:
    raise errors.InvalidArgument(
      f'{path} is not a JSON object: {e}. Fix or remove it.'
    ) from e


def _candidates(vocabulary_path: str | None, checkpoint_path: str) -> list[str]:
  if vocabulary_path is not None:
    # This comes first, because an error must not reveal which files exist
    # outside of the allowed directories.
    roots.check(vocabulary_path, 'vocabulary')
    return [vocabulary_path, *_in(vocabulary_path)]
  base = checkpoint_path.rstrip('/')
  above = os.path.dirname(base)
  paths = [*_in(base), *(_in(above) if above else ())]
  return [path for path in paths if roots.allows(path)]


def _in(directory: str) -> list[str]:
  return [os.path.join(directory, name) for name in _FILES]


def _shortened(text: str) -> str:
  return repr(text if len(text) <= 40 else text[:40] + '...')
