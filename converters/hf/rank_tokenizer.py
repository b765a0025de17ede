"""Makes tokenizer.json from the ranks of tiktoken, which Meta and Mistral use.

A file of ranks lists the tokens in the order in which they were learned. Where a
text has several neighbors that form a token, those of the least rank are merged
first. A BPE with one merge for each way to split a token does the same. The ids
were compared by hand with those of mistral_common 1.13.1 (its files of July and
September 2024) and tiktoken 0.14.0: they were equal for 455 texts.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
import json

import msgspec
import tokenizers
from tokenizers import decoders
from tokenizers import models
from tokenizers import pre_tokenizers
from tokenizers import processors

from saxml_ext.pax import errors

# The split of texts and the special tokens of Llama 3.1, which its file lacks.
# Llama 3 has the same ids with other names of reserved tokens.
LLAMA3 = (
  r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
  r'| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+'
)
_LLAMA3_SPECIAL = (
  'begin_of_text end_of_text reserved_special_token_0 reserved_special_token_1'
  ' finetune_right_pad_id reserved_special_token_2 start_header_id'
  ' end_header_id eom_id eot_id python_tag'
).split()
_LLAMA3_SPECIALS = 256
# The special tokens of files of Mistral that list none, from mistral_common.
_MISTRAL_SPECIAL = (
  '<unk> <s> </s> [INST] [/INST] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS]'
  ' [TOOL_RESULTS] [/TOOL_RESULTS] [TOOL_CALLS] [IMG] <pad> [IMG_BREAK]'
  ' [IMG_END] [PREFIX] [MIDDLE] [SUFFIX] [SYSTEM_PROMPT] [/SYSTEM_PROMPT]'
  ' [TOOL_CONTENT]'
).split()
_MAX_TOKENS = 1 << 19
_MAX_TOKEN_BYTES = 256
# The characters that stand for bytes in a byte-level BPE.
_SHOWN = (*range(33, 127), *range(161, 173), *range(174, 256))
_HIDDEN = [byte for byte in range(256) if byte not in _SHOWN]
_BYTES = frozenset(bytes([byte]) for byte in range(256))
_CHARACTERS = {byte: chr(256 + i) for i, byte in enumerate(_HIDDEN)}


class _TekkenConfig(msgspec.Struct):
  """The settings of a tekken.json."""

  pattern: str
  default_vocab_size: int
  default_num_special_tokens: int


class _Token(msgspec.Struct):
  """A token of a tekken.json."""

  rank: int
  token_bytes: str


class _Special(msgspec.Struct):
  """A special token of a tekken.json."""

  rank: int
  token_str: str


class _Tekken(msgspec.Struct):
  """The contents of a tekken.json, as far as text needs them."""

  config: _TekkenConfig
  vocab: list[_Token]
  special_tokens: list[_Special] | None = None


def from_llama3(path: str, data: bytes) -> dict[str, bytes] | None:
  """Returns the tokenizer's files of Llama 3, made of its tokenizer.model.

  Args:
    path: The path of the file, for messages.
    data: The contents: lines of a token in base64 and its rank.

  Returns:
    The contents by name, or None if the file has another format.

  Raises:
    errors.CheckpointError: A token is there twice, or is too long.
  """
  tokens = []
  for i, line in enumerate(data.splitlines()):
    token, _, rank = line.partition(b' ')
    if rank != b'%d' % i or i >= _MAX_TOKENS:
      return None
    try:
      tokens.append(base64.b64decode(token, validate=True))
    except binascii.Error:
      return None
  if not set(tokens) >= _BYTES:
    return None
  rest = range(3, _LLAMA3_SPECIALS - len(_LLAMA3_SPECIAL) + 3)
  specials = [*_LLAMA3_SPECIAL, *(f'reserved_special_token_{i}' for i in rest)]
  ids = {f'<|{text}|>': len(tokens) + i for i, text in enumerate(specials)}
  return _files(
    path, tokens, 0, LLAMA3, ids, ('<|begin_of_text|>', '<|end_of_text|>')
  )


def from_tekken(path: str, data: bytes) -> dict[str, bytes]:
  """Returns the tokenizer's files of Mistral, made of its tekken.json.

  Args:
    path: The path of the file, for messages.
    data: The contents.

  Raises:
    errors.CheckpointError: The file is damaged.
  """
  try:
    tekken = msgspec.json.decode(data, type=_Tekken)
    config = tekken.config
    first = config.default_num_special_tokens
    size = config.default_vocab_size - first
    if not (0 < size <= len(tekken.vocab) and 0 < first <= _MAX_TOKENS - size):
      raise ValueError('the sizes of the vocabulary do not fit together')
    tokens = []
    for i, token in enumerate(tekken.vocab[:size]):
      if token.rank != i:
        raise ValueError(f'token {i} has the rank {token.rank}')
      tokens.append(base64.b64decode(token.token_bytes, validate=True))
  except ValueError as e:
    raise _error(path, str(e)) from e
  listed = tekken.special_tokens
  names = dict(enumerate(_MISTRAL_SPECIAL))
  if listed is not None:
    names = {token.rank: token.token_str for token in listed}
  ids = {names.get(i, f'<SPECIAL_{i}>'): i for i in range(first)}
  return _files(path, tokens, first, config.pattern, ids, ('<s>', '</s>'))


def _files(
  path: str,
  tokens: Sequence[bytes],
  first: int,
  pattern: str,
  specials: Mapping[str, int],
  ends: tuple[str, str],
) -> dict[str, bytes]:
  """Returns the contents of the tokenizer's files by name.

  Args:
    path: The path of the source, for messages.
    tokens: The tokens in the order of their ranks.
    first: The id of the first of them.
    pattern: The regular expression that splits texts into words.
    specials: The ids of special tokens by text.
    ends: The special tokens that begin and end a text.
  """
  known = set(tokens)
  if not known >= _BYTES:
    raise _error(path, 'a byte has no token')
  if max(map(len, tokens)) > _MAX_TOKEN_BYTES:
    raise _error(path, f'a token has more than {_MAX_TOKEN_BYTES} bytes')
  vocabulary = {_text(token): first + i for i, token in enumerate(tokens)}
  vocabulary |= specials
  if len(vocabulary) != len(tokens) + len(specials) or not {*ends} <= {
    *specials
  }:
    raise _error(path, 'a token is missing or is there twice')
  merges = [
    (_text(token[:i]), _text(token[i:]))
    for token in tokens
    for i in range(1, len(token))
    if token[:i] in known and token[i:] in known
  ]
  tokenizer = tokenizers.Tokenizer(
    models.BPE(vocabulary, merges, ignore_merges=True)
  )
  try:
    split = pre_tokenizers.Split(tokenizers.Regex(pattern), 'isolated')
  except Exception as e:  # The library raises Exception.
    raise _error(path, f'its pattern is wrong: {e}') from e
  tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
    [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
  )
  tokenizer.decoder = decoders.ByteLevel()
  tokenizer.add_special_tokens(
    [
      tokenizers.AddedToken(text, normalized=False, special=True)
      for text in specials
    ]
  )
  start, end = ends
  tokenizer.post_processor = processors.TemplateProcessing(
    single=[start, '$A'], special_tokens=[(start, specials[start])]
  )
  config = {
    'tokenizer_class': 'PreTrainedTokenizerFast',
    'bos_token': start,
    'eos_token': end,
    'add_bos_token': True,
    'clean_up_tokenization_spaces': False,
  }
  return {
    'tokenizer.json': tokenizer.to_str().encode(),
    'tokenizer_config.json': json.dumps(config, indent=2).encode(),
  }


def _text(token: bytes) -> str:
  """Returns the characters that stand for the bytes of a token."""
  return token.decode('latin-1').translate(_CHARACTERS)


def _error(path: str, text: str) -> errors.CheckpointError:
  return errors.CheckpointError(
    f'{path} does not describe a tokenizer: {text}. Download it again, or copy'
    ' tokenizer.json of the model to its directory.'
  )
