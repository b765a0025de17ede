"""Writes random models, with the tokenizer that CTranslate2 requires."""

import fcntl
import json
import os

import tokenizers
from tokenizers import models as tokenizer_models

from converters.convert import random_weights
from saxml_ext.families import all as families
from saxml_ext.families import hf_config

# The approximate size of a file of weights. After an interruption, at most this
# much is written again.
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
  """Writes a random GPT-J to `cache`, unless it is already there.

  The same sizes give the same weights. An interrupted call leaves its finished
  files, and the next call continues with them.

  Args:
    cache: The directory, created if it does not exist.
    layers: The number of layers.
    dim: The model dimension.
    heads: The number of attention heads.
    rotary: The number of rotated dimensions per head.
    vocab: The size of the vocabulary.
    dtype: The type of the weights, "float32" or "bfloat16".

  Returns:
    The directory of the model, in Hugging Face's layout.

  Raises:
    ValueError: The sizes contradict each other.
    OSError: The model cannot be written.
  """
  sizes = hf_config.HFConfig(
    layers, dim, heads, 4 * dim, vocab, rotary_dim=rotary
  )
  return write_sizes(cache, 'gptj', sizes, dtype)


def write_sizes(
  cache: str, family: str, sizes: hf_config.HFConfig, dtype: str
) -> str:
  """Writes a random model of any family and sizes, like `write`."""
  numbers = [sizes.num_heads, sizes.rotary_dim, sizes.vocab_size]
  if family != 'gptj':
    numbers += [sizes.kv_heads, sizes.hidden_dim]
  name = f'{family}-{sizes.num_layers}x{sizes.model_dim}-'
  name += '-'.join(map(str, numbers))
  if dtype != 'float32':
    name += f'-{dtype}'
  path = os.path.join(cache, name)
  if os.path.isdir(path):
    return path
  matrices = 4 * sizes.model_dim + 3 * sizes.hidden_dim
  values = sizes.num_layers * matrices + 2 * sizes.vocab_size
  size = _BYTES[dtype] * values * sizes.model_dim
  partial = f'{path}.partial'
  os.makedirs(cache, exist_ok=True)
  with open(f'{path}.lock', 'wb') as lock:
    # Another run may be writing the same model.
    fcntl.flock(lock, fcntl.LOCK_EX)
    if os.path.isdir(path):
      return path
    random_weights.write(
      partial,
      sizes,
      # The embedding of the largest vocabularies is a file of its own.
      shards=max(1, min(size // _SHARD_BYTES, 2 * sizes.num_layers)),
      dtype=dtype,
      resume=True,
      family=families.named(family),
    )
    _write_tokenizer(partial, sizes.vocab_size)
    # The directory is either complete or absent, even after an interruption.
    os.rename(partial, path)
  return path


def _write_tokenizer(directory: str, vocab: int) -> None:
  """Writes a tokenizer of words t0, t1, ..., which CTranslate2 requires."""
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
