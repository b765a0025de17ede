"""Writes the random model, with the tokenizer that CTranslate2 asks for."""

import json
import os
import shutil
import tempfile

import tokenizers
from tokenizers import models as tokenizer_models

from converters.convert import random_weights
from saxml_ext.pax import layout


def write(
  cache: str, layers: int, dim: int, heads: int, rotary: int, vocab: int
) -> str:
  """A random GPT-J in `cache`, written there unless it is there already.

  Raises:
    ValueError: the sizes do not fit together.
    OSError: it cannot be written.
  """
  path = os.path.join(cache, f'gptj-{layers}x{dim}-{heads}-{rotary}-{vocab}')
  if os.path.isdir(path):
    return path
  os.makedirs(cache, exist_ok=True)
  scratch = tempfile.mkdtemp(dir=cache)
  try:
    shape = layout.GPTJShape(layers, dim, heads, 4 * dim, vocab)
    random_weights.write(scratch, shape, rotary)
    _write_tokenizer(scratch, vocab)
    # Whole or not there, however this ends.
    os.rename(scratch, path)
  finally:
    shutil.rmtree(scratch, ignore_errors=True)
  return path


def _write_tokenizer(directory: str, vocab: int) -> None:
  """A tokenizer of words t0, t1, ...: CTranslate2 asks for one of that size."""
  words = {f't{i}': i for i in range(vocab)}
  tokenizer = tokenizers.Tokenizer(
    tokenizer_models.WordLevel(words, unk_token='t0')
  )
  tokenizer.save(os.path.join(directory, 'tokenizer.json'))
  end = f't{vocab - 1}'
  settings = {
    'tokenizer_class': 'PreTrainedTokenizerFast',
    'bos_token': end,
    'eos_token': end,
    'unk_token': 't0',
  }
  path = os.path.join(directory, 'tokenizer_config.json')
  with open(path, 'w', encoding='ascii') as file:
    json.dump(settings, file)
