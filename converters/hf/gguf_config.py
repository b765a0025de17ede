"""Reads the sizes of a model from the metadata of a GGUF file."""

from collections.abc import Mapping
import dataclasses
import importlib
import math
import re
from typing import Any

import numpy as np

from converters.hf import gguf_file
from saxml_ext.engine import architecture
from saxml_ext.families import family as family_lib
from saxml_ext.families import hf_config
from saxml_ext.families import hf_rotary
from saxml_ext.families import llama
from saxml_ext.families import qwen2
from saxml_ext.pax import errors

TOKENIZER = 'tokenizer.ggml.'
_LAYER = 'blk.{layer}.'
_EMBEDDING, _HEAD = 'token_embd.weight', 'output.weight'
_FACTORS = 'rope_freqs.weight'
_TENSORS = {
  'embedding': (_EMBEDDING,),
  'layers.norm.scale': (_LAYER + 'attn_norm.weight',),
  'layers.qkv': tuple(f'{_LAYER}attn_{x}.weight' for x in 'qkv'),
  'layers.post': (_LAYER + 'attn_output.weight',),
  'layers.ff_norm.scale': (_LAYER + 'ffn_norm.weight',),
  'layers.gate': (_LAYER + 'ffn_gate.weight',),
  'layers.up': (_LAYER + 'ffn_up.weight',),
  'layers.down': (_LAYER + 'ffn_down.weight',),
  'final_norm.scale': ('output_norm.weight',),
  'head': (_HEAD,),
}
_BIASES = {'layers.qkv_bias': tuple(f'{_LAYER}attn_{x}.bias' for x in 'qkv')}
# llama.cpp reorders the queries and keys of Llama, and only those, so that
# rotary positions rotate neighboring dims. PAX checkpoints have this order too.
_FAMILIES = {
  'llama': dataclasses.replace(
    llama.FAMILY, tensors=_TENSORS, rotates_halves=False
  ),
  'qwen2': dataclasses.replace(qwen2.FAMILY, tensors=_TENSORS | _BIASES),
}
# The keys after the name of the architecture, by field of HFConfig.
_KEYS = {
  'num_layers': 'block_count',
  'model_dim': 'embedding_length',
  'num_heads': 'attention.head_count',
  'num_kv_heads': 'attention.head_count_kv',
  'hidden_dim': 'feed_forward_length',
  'max_positions': 'context_length',
  'rotary_base': 'rope.freq_base',
  'ln_epsilon': 'attention.layer_norm_rms_epsilon',
}
_HEAD_SIZES = (
  'attention.key_length',
  'attention.value_length',
  'rope.dimension_count',
)
# Further keys and the values that change nothing; the first is the default.
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
  'attention.causal': (True,),
  'attention.sliding_window': (0,),
  'expert_count': (0,),
  'expert_used_count': (0,),
  'logit_scale': (1.0, 0.0),
  'rope.scaling.attn_factor': (1.0,),
  'rope.scaling.type': ('none', 'linear'),
}
_LINEAR_FACTORS = ('rope.scaling.factor', 'rope.scale_linear')
# Keys that say nothing about the computation.
_NOTES = (
  'rope.scaling.finetuned',
  'rope.scaling.original_context_length',
  'tensor_data_layout',
)
_DEFAULTS = {'rotary_base': 10000.0}
# The keys of special tokens, and their ids in SentencePiece models without them.
_IDS: Mapping[str, tuple[str, int | None]] = {
  'bos_token_id': ('bos_token_id', 1),
  'eos_token_id': ('eos_token_id', 2),
  'unk_token_id': ('unknown_token_id', 0),
  'pad_token_id': ('padding_token_id', None),
  'eot_token_id': ('eot_token_id', None),
  'eom_token_id': ('eom_token_id', None),
}
# Control tokens that end an answer, whatever the metadata names.
_END_TEXTS = (
  '<|eot_id|>',
  '<|eom_id|>',
  '<|im_end|>',
  '<|end|>',
  '<|endoftext|>',
  '<|end_of_text|>',
  '<end_of_turn>',
)
_CONTROL = 3
# The scaling of Llama 3.1. Few heads have enough dims to infer it.
_LLAMA3 = (1.0, 4.0, 8192)


def read(
  path: str, file: gguf_file.GGUFFile
) -> tuple[family_lib.Family, hf_config.HFConfig]:
  """Returns the family of a model, with the names in GGUF, and its sizes.

  Args:
    path: The path of the file, for messages.
    file: The file.

  Raises:
    errors.CheckpointError: The file is not a model, the architecture or a
      setting is not supported, or sizes do not fit together.
  """
  metadata = file.metadata
  name, kind = (
    metadata.get('general.architecture'),
    metadata.get('general.type'),
  )
  if kind not in (None, 'model'):
    raise errors.CheckpointError(
      f'{path} is of the type {kind!r}. Expected a whole model.'
    )
  if name not in _FAMILIES:
    raise errors.CheckpointError(
      f'{path} has the architecture {name!r}, which is not supported. Supported'
      f' architectures of GGUF files: {", ".join(_FAMILIES)}.'
    )
  rows = (file.shapes.get(_EMBEDDING) or (0,))[0]
  settings = _settings(path, name, metadata, rows)
  table = hf_config.Table(
    '',
    keys={field: f'{name}.{key}' for field, key in _KEYS.items()},
    defaults=_DEFAULTS,
    accepted={f'{name}.{k}': v for k, v in _NEUTRAL.items()},
  )
  ids = token_ids(path, file)
  document = {
    **settings,
    **ids,
    'eos_token_id': ids['end_token_ids'],
    'vocab_size': rows,
    'tie_word_embeddings': _HEAD not in file.shapes,
  }
  config = hf_config.read(path, document, table)
  for key in (f'{name}.{k}' for k in _HEAD_SIZES):
    if settings.get(key, config.head_dim) != config.head_dim:
      raise errors.CheckpointError(
        f'{path}: {key} is {settings[key]}. Expected {config.head_dim}, the'
        f' share of a head in {name}.embedding_length.'
      )
  family = dataclasses.replace(
    _FAMILIES[name], buffers=re.compile(re.escape(_FACTORS))
  )
  scaling = _scaling(path, name, settings, config, file)
  return family, dataclasses.replace(config, rotary_scaling=scaling)


def _settings(
  path: str, name: str, metadata: Mapping[str, Any], rows: int
) -> dict[str, Any]:
  """Returns the settings of the architecture; one value for all layers each.

  Raises:
    errors.CheckpointError: A setting is unknown, or differs between layers or
      from the embedding.
  """
  known = {*_KEYS.values(), *_HEAD_SIZES, *_NEUTRAL, *_LINEAR_FACTORS, *_NOTES}
  settings = {}
  for key, value in metadata.items():
    prefix, _, rest = key.partition('.')
    if prefix != name:
      continue
    if rest not in known | {'vocab_size'}:
      raise errors.CheckpointError(
        f'{path}: the setting {key} = {str(value)[:100]} is not supported.'
      )
    if isinstance(value, list):
      if len(set(value)) != 1:
        raise errors.CheckpointError(
          f'{path}: {key} is {str(value)[:100]}. Expected the same value for'
          ' all layers.'
        )
      value = value[0]
    if isinstance(value, float):
      # The shortest decimal number, which the author of the model wrote.
      value = float(str(np.float32(value)))
    settings[key] = value
  tokens = metadata.get(f'{TOKENIZER}tokens')
  for key, size in (
    (f'{name}.vocab_size', settings.pop(f'{name}.vocab_size', rows)),
    (f'The length of {TOKENIZER}tokens', len(tokens) if tokens else rows),
  ):
    if size != rows:
      raise errors.CheckpointError(
        f'{path}: {key} is {size}, but {_EMBEDDING} has {rows} rows. Expected'
        ' one row for each token.'
      )
  return settings


def token_ids(path: str, file: gguf_file.GGUFFile) -> dict[str, Any]:
  """Returns the ids of special tokens.

  Args:
    path: The path of the file, for messages.
    file: The file.

  Returns:
    `bos_token_id`, `eos_token_id`, `unk_token_id` and `pad_token_id`, which may
    be None, and `end_token_ids`, the list of all tokens that end an answer.

  Raises:
    errors.CheckpointError: An id is not the id of a token.
  """
  metadata = file.metadata
  size = (file.shapes.get(_EMBEDDING) or (0,))[0]
  is_pieces = metadata.get(f'{TOKENIZER}model') == 'llama'
  ids: dict[str, Any] = dict.fromkeys(_IDS)
  for name, (key, default) in _IDS.items():
    value = metadata.get(f'{TOKENIZER}{key}', default if is_pieces else None)
    if value is not None and (type(value) is not int or not 0 <= value < size):
      raise errors.CheckpointError(
        f'{path}: {TOKENIZER}{key} is {value}. Expected the id of one of the'
        f' {size} tokens.'
      )
    ids[name] = value
  ends = [ids['eos_token_id'], ids.pop('eot_token_id'), ids.pop('eom_token_id')]
  tokens = metadata.get(f'{TOKENIZER}tokens') or ()
  types = metadata.get(f'{TOKENIZER}token_type') or ()
  ends += [
    i
    for i, (text, kind) in enumerate(zip(tokens, types))
    if kind == _CONTROL and text in _END_TEXTS
  ]
  ids['end_token_ids'] = [i for i in dict.fromkeys(ends) if i is not None]
  return ids


def _scaling(
  path: str,
  name: str,
  settings: Mapping[str, Any],
  config: hf_config.HFConfig,
  file: gguf_file.GGUFFile,
) -> architecture.RotaryScaling | None:
  """Returns the scaling of rotary positions, or None for no scaling."""
  is_linear = settings.get(f'{name}.rope.scaling.type', 'linear') == 'linear'
  factors = {settings.get(f'{name}.{key}', 1.0) for key in _LINEAR_FACTORS}
  factors = factors - {0.0, 1.0} if is_linear else set()
  if (
    any(type(f) is not float or not f >= 1 for f in factors) or len(factors) > 1
  ):
    raise errors.CheckpointError(
      f'{path}: the factors of rotary positions are {sorted(map(str, factors))}.'
      ' Expected one factor of at least 1.'
    )
  if _FACTORS not in file.shapes:
    return hf_rotary.linear(factors.pop()) if factors else None
  shape = file.shapes[_FACTORS]
  values = np.asarray(file.read(_FACTORS), np.float64)
  scaling = None
  if shape == (config.rotary_dim // 2,) and not factors:
    if (values == 1).all():
      return None
    scaling = _matching(values, config)
  if scaling is None:
    raise errors.CheckpointError(
      f'{path}: the tensor {_FACTORS} of shape {list(shape)} has factors of'
      ' rotary positions that are not those of Llama 3.1 or of linear scaling.'
      ' Only these are supported.'
    )
  return scaling


def _matching(
  factors: np.ndarray, config: hf_config.HFConfig
) -> architecture.RotaryScaling | None:
  """Returns the scaling that divides frequencies by factors, or None.

  Args:
    factors: The factors of the rotated pairs, [H / 2].
    config: The sizes of the model.
  """
  dim, base = config.rotary_dim, config.rotary_base
  largest = float(factors.max())
  if not 1 < largest < math.inf or not factors.min() >= 1:
    return None
  frequency = _frequency(dim, base, None)
  # The share of the original frequency is linear in it, up to its limits.
  share = (1 / factors - 1 / largest) / (1 - 1 / largest)
  between = (share > 1e-4) & (share < 1 - 1e-4)
  candidates = [hf_rotary.linear(largest)]
  candidates.append(architecture.RotaryScaling(largest, *_LLAMA3))
  if between.sum() > 1:
    cycles = frequency[between] / (2 * math.pi)
    slope, offset = np.polyfit(cycles, share[between], 1)
    if slope > 0 > offset:
      candidates.append(
        architecture.RotaryScaling(
          largest, 1.0, round(1 - 1 / offset, 3), max(1, round(-slope / offset))
        )
      )
  for scaling in candidates:
    scaled = _frequency(dim, base, scaling)
    if np.allclose(scaled, frequency / factors, rtol=1e-5, atol=0):
      return scaling
  return None


def _frequency(
  dim: int, base: float, scaling: architecture.RotaryScaling | None
) -> np.ndarray:
  """Returns the angles of position 1, [dim / 2] float32."""
  # The import of JAX is slow, and few files have such factors.
  rotary = importlib.import_module('saxml_ext.engine.rotary')
  sin, cos = rotary.table(2, dim, base, scaling)
  return np.arctan2(sin[1], cos[1])
