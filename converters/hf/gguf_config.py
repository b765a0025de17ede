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
from saxml_ext.families import all as families
from saxml_ext.families import family as family_lib
from saxml_ext.families import hf_config
from saxml_ext.families import hf_entries
from saxml_ext.families import hf_rotary
from saxml_ext.pax import errors

TOKENIZER = 'tokenizer.ggml.'
_LAYER = 'blk.{layer}.'
_EMBEDDING, _HEAD = 'token_embd.weight', 'output.weight'
_FACTORS = 'rope_freqs.weight'
# The factors of longrope for texts of at most the original length, and others.
_SHORT, _LONG = 'rope_factors_short.weight', 'rope_factors_long.weight'
_TENSORS = {
  'embedding': (_EMBEDDING,),
  'layers.norm.scale': (_LAYER + 'attn_norm.weight',),
  'layers.qkv': tuple(f'{_LAYER}attn_{x}.weight' for x in 'qkv'),
  'layers.qkv_bias': tuple(f'{_LAYER}attn_{x}.bias' for x in 'qkv'),
  'layers.query_norm.scale': (_LAYER + 'attn_q_norm.weight',),
  'layers.key_norm.scale': (_LAYER + 'attn_k_norm.weight',),
  'layers.post': (_LAYER + 'attn_output.weight',),
  'layers.ff_norm.scale': (_LAYER + 'ffn_norm.weight',),
  'layers.gate': (_LAYER + 'ffn_gate.weight',),
  'layers.up': (_LAYER + 'ffn_up.weight',),
  'layers.down': (_LAYER + 'ffn_down.weight',),
  'final_norm.scale': ('output_norm.weight',),
  'head': (_HEAD,),
}
# The families by the name of their architecture, with the tensors that differ.
# Mistral has the architecture of Llama.
_FAMILIES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
  **dict.fromkeys(('llama', 'qwen2', 'qwen3', 'gemma'), {}),
  **dict.fromkeys(('granite', 'smollm3'), {}),
  'olmo2': {
    'layers.norm.scale': (_LAYER + 'post_attention_norm.weight',),
    'layers.ff_norm.scale': (_LAYER + 'post_ffw_norm.weight',),
  },
  'phi3': {
    'layers.qkv': (_LAYER + 'attn_qkv.weight',) * 3,
    'layers.gate': _TENSORS['layers.up'],
  },
}
# llama.cpp reorders the queries and keys of these, so that rotary positions
# rotate neighboring dims.
_NEIGHBORS = ('llama', 'granite', 'smollm3')
# The keys after the name of the architecture, by field of HFConfig.
_KEYS = {
  'num_layers': 'block_count',
  'model_dim': 'embedding_length',
  'num_heads': 'attention.head_count',
  'num_kv_heads': 'attention.head_count_kv',
  'own_head_dim': 'attention.key_length',
  'hidden_dim': 'feed_forward_length',
  'max_positions': 'context_length',
  'rotary_base': 'rope.freq_base',
  'ln_epsilon': 'attention.layer_norm_rms_epsilon',
}
_ROTATED = 'rope.dimension_count'
_HEAD_SIZES = ('attention.value_length', _ROTATED)
# The keys of the fields of architecture.Details.
_DETAILS = {
  'embedding': 'embedding_scale',
  'residual': 'residual_scale',
  'attention': 'attention.scale',
  'logits_divisor': 'logit_scale',
}
_WINDOW, _GAIN = 'attention.sliding_window', 'rope.scaling.attn_factor'
_LENGTH = 'rope.scaling.original_context_length'
# Further keys and the values that change nothing; the first is the default.
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
  'attention.causal': (True,),
  _WINDOW: (0,),
  'expert_count': (0,),
  'expert_used_count': (0,),
  'logit_scale': (1.0, 0.0),
  'rope.scaling.type': ('none', 'linear'),
}
_LINEAR_FACTORS = ('rope.scaling.factor', 'rope.scale_linear')
# Keys that say nothing about the computation.
_NOTES = ('rope.scaling.finetuned', _LENGTH, 'tensor_data_layout')
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
  name: Any = metadata.get('general.architecture')
  kind = metadata.get('general.type')
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
  family, table = _family(name), _table(name)
  settings = _settings(path, name, metadata, rows, table)
  ids = token_ids(path, file)
  document = {
    **settings,
    **ids,
    'eos_token_id': ids['end_token_ids'],
    'vocab_size': rows,
    'tie_word_embeddings': _HEAD not in file.shapes,
  }
  config = hf_config.read(path, document, table)
  for key in {f'{name}.{k}' for k in _HEAD_SIZES} - {*table.keys.values()}:
    if settings.get(key, config.head_dim) != config.head_dim:
      raise errors.CheckpointError(
        f'{path}: {key} is {settings[key]}. Expected {config.head_dim}, the'
        ' width of a head.'
      )
  if _SHORT in file.shapes:
    config = _add_longrope(path, name, settings, config, file)
  else:
    scaling = _scaling(path, name, settings, config, file)
    config = dataclasses.replace(config, rotary_scaling=scaling)
  return family, config


def _family(name: str) -> family_lib.Family:
  """Returns a family with the names of tensors in GGUF."""
  member = families.FAMILIES[name]
  names = _TENSORS | dict(_FAMILIES[name])
  tensors = {field: names[field] for field in member.tensors}
  renamed = {
    old: new
    for field in tensors
    for old, new in zip(member.tensors[field], tensors[field])
  }
  return dataclasses.replace(
    member,
    tensors=tensors,
    fused={renamed[old]: fields for old, fields in member.fused.items()},
    rotates_halves=name not in _NEIGHBORS,
    buffers=re.compile('|'.join(map(re.escape, (_FACTORS, _SHORT, _LONG)))),
  )


def _table(name: str) -> hf_config.Table:
  """Returns the names of the settings of an architecture."""
  config = families.FAMILIES[name].config
  assert config
  details = dataclasses.replace(
    config.details,
    factors={f: f'{name}.{_DETAILS[f]}' for f in config.details.factors},
  )
  keys = {field: f'{name}.{key}' for field, key in _KEYS.items()}
  if 'rotary_share' in config.keys:
    keys['rotary_dim'] = f'{name}.{_ROTATED}'
  accepted = {f'{name}.{k}': v for k, v in _NEUTRAL.items()}
  for key in details.factors.values():
    accepted.pop(key, None)
  return hf_config.Table('', keys, _DEFAULTS, accepted, details=details)


def _settings(
  path: str,
  name: str,
  metadata: Mapping[str, Any],
  rows: int,
  table: hf_config.Table,
) -> dict[str, Any]:
  """Returns the settings of the architecture; one value for all layers each.

  Raises:
    errors.CheckpointError: A setting is unknown, or differs between layers or
      from the embedding.
  """
  known = {*_HEAD_SIZES, *_NEUTRAL, *_LINEAR_FACTORS, *_NOTES, _GAIN}
  known = {f'{name}.{key}' for key in known | {'vocab_size'}}
  known |= {*table.keys.values(), *table.details.factors.values()}
  settings = {}
  for key, value in metadata.items():
    if not key.startswith(f'{name}.'):
      continue
    if key not in known:
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
  window = settings.get(f'{name}.{_WINDOW}')
  length = settings.get(f'{name}.context_length')
  if type(window) is type(length) is int and window >= length:
    del settings[f'{name}.{_WINDOW}']  # It covers the whole context.
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
  hf_entries.Entries(path, settings).check(f'{name}.{_GAIN}', (1.0,))
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


def _add_longrope(
  path: str,
  name: str,
  settings: Mapping[str, Any],
  config: hf_config.HFConfig,
  file: gguf_file.GGUFFile,
) -> hf_config.HFConfig:
  """Returns a config with the factors for texts of the original length."""
  values = np.asarray(file.read(_SHORT), np.float32)
  if values.shape != (config.rotary_dim // 2,) or not (values > 0).all():
    raise errors.CheckpointError(
      f'{path}: the tensor {_SHORT} of shape {list(values.shape)} is not usable.'
      f' Expected {config.rotary_dim // 2} positive factors.'
    )
  entries = hf_entries.Entries(path, settings)
  length = entries.integer(f'{name}.{_LENGTH}', config.max_positions)
  gain = entries.number(f'{name}.{_GAIN}', 1.0, hf_rotary.SCALING_LIMIT)
  return dataclasses.replace(
    config,
    # Longer texts have other factors; see `hf_rotary.scaling`.
    max_positions=min(config.max_positions, length),
    rotary_scaling=hf_rotary.divided([float(str(x)) for x in values], gain),
  )


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
