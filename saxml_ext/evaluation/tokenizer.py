"""Loads tokenizers of the GPT-2 family from the files of a checkpoint.

The official GPT-J checkpoint has the files of the slow tokenizer, vocab.json
and merges.txt. Newer models have a tokenizer.json. Both kinds of directories
are supported.
"""

import os
from typing import Any

import tokenizers
from tokenizers import decoders
from tokenizers import models
from tokenizers import pre_tokenizers

from saxml_ext.common import files

_FILE = 'tokenizer.json'
_VOCABULARY = 'vocab.json'
_MERGES = 'merges.txt'
_ADDED = 'added_tokens.json'
_CONFIG = 'tokenizer_config.json'
_CLEAN_UP = 'clean_up_tokenization_spaces'
_END_OF_TEXT = '<|endoftext|>'


def load(path: str) -> tokenizers.Tokenizer:
  """Reads a tokenizer, and turns off its truncation and padding.

  Args:
    path: The path of a tokenizer.json, or of a directory. The directory has a
      tokenizer.json, or vocab.json and merges.txt of a GPT-2 tokenizer.

  Raises:
    ValueError: The path has no usable tokenizer.
  """
  try:
    tokenizer = _load(path)
  except Exception as error:  # The library raises only Exception.
    raise ValueError(f'no usable {_FILE} at {path}: {error}') from error
  tokenizer.no_truncation()
  tokenizer.no_padding()
  return tokenizer


def _load(path: str) -> tokenizers.Tokenizer:
  if not os.path.isdir(path):
    return tokenizers.Tokenizer.from_file(path)
  file = os.path.join(path, _FILE)
  if os.path.exists(file):
    return tokenizers.Tokenizer.from_file(file)
  vocabulary = os.path.join(path, _VOCABULARY)
  if not os.path.exists(vocabulary):
    raise ValueError(f'the directory has neither {_FILE} nor {_VOCABULARY}')
  return _gpt2(path, vocabulary)


def _gpt2(path: str, vocabulary: str) -> tokenizers.Tokenizer:
  """Builds the tokenizer that transformers creates from these files."""
  bpe = models.BPE.from_file(vocabulary, os.path.join(path, _MERGES))
  tokenizer = tokenizers.Tokenizer(bpe)
  tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
  tokenizer.decoder = decoders.ByteLevel()
  # New tokens get consecutive ids. Those of GPT-J start after vocab.json.
  added = _read(os.path.join(path, _ADDED))
  tokenizer.add_tokens(sorted(added, key=lambda token: added[token]))
  end = _read(os.path.join(path, _CONFIG)).get('eos_token', _END_OF_TEXT)
  end = end['content'] if isinstance(end, dict) else end
  tokenizer.add_special_tokens([end])
  wrong = [t for t, n in added.items() if tokenizer.token_to_id(t) != n]
  if wrong:
    raise ValueError(
      f'{_ADDED} maps {wrong[0]!r} to the id {added[wrong[0]]}, which does not'
      f' follow the ids of {_VOCABULARY}'
    )
  return tokenizer


def _read(path: str) -> dict[str, Any]:
  return files.read_json(path, dict) if os.path.exists(path) else {}


def cleans_up(path: str) -> bool:
  """Returns True if decoding removes blanks before punctuation.

  The reference's evaluation decodes with transformers 4, which removes them: "
  ." becomes ".". Only tokenizer_config.json can turn this off. The official
  figures count characters after this step. transformers 5 no longer removes the
  blanks.

  Args:
    path: The path of the tokenizer, as for `load`. The configuration is in the
      same directory.

  Raises:
    ValueError: tokenizer_config.json is not JSON.
  """
  directory = path if os.path.isdir(path) else os.path.dirname(path)
  return bool(_read(os.path.join(directory, _CONFIG)).get(_CLEAN_UP, True))


# The replacements of transformers' clean_up_tokenization, in its order.
_SHORTENED = (
  (' .', '.'),
  (' ?', '?'),
  (' !', '!'),
  (' ,', ','),
  (" ' ", "'"),
  (" n't", "n't"),
  (" 'm", "'m"),
  (" 's", "'s"),
  (" 've", "'ve"),
  (" 're", "'re"),
)


def clean_up(text: str) -> str:
  """Removes blanks before punctuation from a decoded text."""
  for long, short in _SHORTENED:
    text = text.replace(long, short)
  return text
