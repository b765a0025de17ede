"""Writes the random model, with the tokenizer that CTranslate2 asks for."""

import fcntl
import json
import os

import tokenizers
from tokenizers import models as tokenizer_models

from converters.convert import random_weights
from saxml_ext.families import layout

# Of a file of weights, about: what is written anew after an interruption.
_SHARD_BYTES = 1 << 29
_BYTES = {'float32': 4, 'bfloat16': 2}


def write(
  cache: str,
  layers: int,
  dim: int,
  heads: int,
  rotary: int,
  vocab: int,
  dtype: str = 'float32',
) -> str:
  """A random GPT-J in `cache`, written there unless it is there already.

  The same sizes give the same weights. What an interrupted call has written is
  kept, and the next one goes on from there.

  Args:
    cache: directory, made if need be.
    layers: their number.
    dim: width.
    heads: attention heads.
    rotary: rotated dims of a head.
    vocab: tokens.
    dtype: of the weights, "float32" or "bfloat16".

  Returns:
    Its directory, of Hugging Face's layout.

  Raises:
    ValueError: the sizes do not fit together.
    OSError: it cannot be written.
  """
  name = f'gptj-{layers}x{dim}-{heads}-{rotary}-{vocab}'
  if dtype != 'float32':
    name += f'-{dtype}'
  path = os.path.join(cache, name)
  if os.path.isdir(path):
    return path
  shape = layout.ModelShape(layers, dim, heads, 4 * dim, vocab)
  size = _BYTES[dtype] * (12 * layers * dim**2 + 2 * vocab * dim)
  partial = f'{path}.partial'
  os.makedirs(cache, exist_ok=True)
  with open(f'{path}.lock', 'wb') as lock:
    # Another run may be writing the same model.
    fcntl.flock(lock, fcntl.LOCK_EX)
    if os.path.isdir(path):
      return path
    random_weights.write(
      partial,
      shape,
      rotary,
      shards=max(1, size // _SHARD_BYTES),
      dtype=dtype,
      resume=True,
    )
    _write_tokenizer(partial, vocab)
    # Whole or not there, however this ends.
    os.rename(partial, path)
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
