"""Writes the random model, with the tokenizer that CTranslate2 asks for."""

import fcntl
import json
import os

import tokenizers
from tokenizers import models as tokenizer_models

from converters.convert import random_weights
from saxml_ext.families import hf_config

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
  """Writes a random GPT-J into `cache` unless it is there already.

  The same sizes give the same weights. An interrupted call leaves what it has
  written, and the next call goes on from there.

  Args:
    cache: The directory, made if it does not exist.
    layers: The number of layers.
    dim: The model dimension.
    heads: The number of attention heads.
    rotary: The rotated dimensions of a head.
    vocab: The size of the vocabulary.
    dtype: The type of the weights, "float32" or "bfloat16".

  Returns:
    The directory of the model, in Hugging Face's layout.

  Raises:
    ValueError: The sizes do not fit together.
    OSError: The model cannot be written.
  """
  name = f'gptj-{layers}x{dim}-{heads}-{rotary}-{vocab}'
  if dtype != 'float32':
    name += f'-{dtype}'
  path = os.path.join(cache, name)
  if os.path.isdir(path):
    return path
  shape = hf_config.HFConfig(
    layers, dim, heads, 4 * dim, vocab, rotary_dim=rotary
  )
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
      shards=max(1, size // _SHARD_BYTES),
      dtype=dtype,
      resume=True,
    )
    _write_tokenizer(partial, vocab)
    # Whole or not there, however this ends.
    os.rename(partial, path)
  return path


def _write_tokenizer(directory: str, vocab: int) -> None:
  """Writes a tokenizer of words t0, t1, ..., because CTranslate2 asks for one."""
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
