"""Writes a small random model as a complete PAX checkpoint."""

import dataclasses
import hashlib
import json
import os

import numpy as np
import tokenizers

from saxml_ext.engine import config as config_lib
from saxml_ext.engine.testing import random_model
from saxml_ext.families import all as families
from saxml_ext.pax import description
from saxml_ext.pax.testing import checkpoints

CONFIG = config_lib.ModelConfig(
  num_layers=3,
  model_dim=32,
  num_heads=2,
  head_dim=16,
  hidden_dim=64,
  rotary_dim=8,
  vocab_size=64,
)


def variables(family: str = 'gptj') -> dict[str, np.ndarray]:
  """Returns float32 variables with uneven channels, as after training."""
  architecture = families.FAMILIES[family].architecture
  config = dataclasses.replace(CONFIG, architecture=architecture)
  result = random_model.variables(config, scale=3.0)
  rng = np.random.default_rng(5)
  for index in range(CONFIG.num_layers):
    size = np.exp2(rng.integers(-3, 4, CONFIG.model_dim)).astype(np.float32)
    prefix = f'params.lm.transformer.x_layers_{index}.'
    for name, factor in (
      ('layer_norm.scale', size),
      ('layer_norm.bias', size),
      ('self_attention.combined_qkv.w', 1 / size[:, None, None]),
      ('ff_layer.ffn_layer1.linear.w', 1 / size[:, None]),
    ):
      result[prefix + name] = result[prefix + name] * factor
  return result


def write(directory: str, dtype=np.float32, family: str = 'gptj') -> str:
  """Writes checkpoint, description and tokenizer; returns the directory."""
  checkpoints.write_checkpoint(
    directory, ((n, v.astype(dtype)) for n, v in variables(family).items())
  )
  description.write(
    directory,
    description.Description(
      rotary_dim=CONFIG.rotary_dim,
      ln_epsilon=CONFIG.ln_epsilon,
      max_positions=256,
      eos_id=0,
      family=family,
    ),
  )
  return write_tokenizer(directory)


def write_tokenizer(directory: str, size: int = CONFIG.vocab_size) -> str:
  """Writes a tokenizer with the words w1, w2, ...; returns the directory."""
  words = ['<eos>'] + [f'w{i}' for i in range(1, size)]
  tokenizer = tokenizers.Tokenizer(
    tokenizers.models.WordLevel(
      {word: i for i, word in enumerate(words)}, unk_token='<eos>'
    )
  )
  tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
  tokenizer.add_special_tokens(['<eos>'])
  tokenizer.save(os.path.join(directory, 'tokenizer.json'))
  return directory


def write_articles(path: str, count: int, seed: int = 0) -> str:
  """Writes articles with words of the tokenizer; returns the path."""
  rng = np.random.default_rng(seed)

  def text(length: int) -> str:
    return ' '.join(f'w{i}' for i in rng.integers(1, 64, length))

  articles = [
    {'instruction': text(3), 'input': text(20 + i), 'output': text(8)}
    for i in range(count)
  ]
  with open(path, 'w', encoding='utf-8') as f:
    json.dump(articles, f)
  return path


def digest(directory: str) -> dict[str, str]:
  """Returns a hash of every file below a directory, by path."""
  result = {}
  for parent, _, names in os.walk(directory):
    for name in names:
      path = os.path.join(parent, name)
      with open(path, 'rb') as f:
        key = os.path.relpath(path, directory)
        result[key] = hashlib.sha256(f.read()).hexdigest()
  return result
