"""Random weights as a Hugging Face checkpoint, streamed to disk."""

from collections.abc import Iterator, Sequence, Set
import json
import os
from typing import Any

import numpy as np

from converters.convert import model_source
from converters.convert import prefetch
from converters.convert import progress
from converters.hf import safetensors_writer
from converters.hf import tensor_spec
from converters.hf import torch_writer
from saxml_ext.common import files
from saxml_ext.families import family as family_lib
from saxml_ext.families import gptj
from saxml_ext.families import hf_config
from saxml_ext.families import layout

_MAX_POSITIONS = 2048
_THREADS = 2
_FORMATS = {
  'safetensors': ('model', safetensors_writer.write),
  'bin': ('pytorch_model', torch_writer.write),
}


def write(
  directory: str,
  shape: layout.ModelShape,
  rotary_dim: int,
  file_format: str = 'safetensors',
  shards: int = 1,
  seed: int = 0,
  dtype: str = 'float32',
  resume: bool = False,
  family: family_lib.Family = gptj.FAMILY,
) -> None:
  """Writes config.json and the weights, each file whole or not at all.

  Args:
    directory: made if need be.
    shape: sizes of the model.
    rotary_dim: dimensions of each head that rotate.
    file_format: "safetensors" or "bin".
    shards: number of files of weights.
    seed: of the weights.
    dtype: a key of model_source.DTYPES.
    resume: whether files of weights that are there already are kept, as an
      earlier call with the same arguments has written them.
    family: The family of the model.

  Raises:
    ValueError: sizes do not fit together.
    OSError: a file cannot be written.
  """
  if rotary_dim % 2 or rotary_dim > shape.head_dim:
    raise ValueError(
      f'--rotary_dim is {rotary_dim}; expected an even number '
      f'of at most {shape.head_dim} (--dim / --heads)'
    )
  os.makedirs(directory, exist_ok=True)
  _write_json(
    os.path.join(directory, 'config.json'),
    _config(family, shape, rotary_dim, dtype),
  )
  variables = layout.variables(shape, family=family)
  specs = _specs(variables, model_source.DTYPES[dtype])
  # Scales of norms, which are near 1.
  scales = {
    name for v in variables if v.name.endswith('.scale') for name in v.sources
  }
  if shards > len(specs):
    raise ValueError(f'--shards is {shards}; there are {len(specs)} tensors')
  stem, write_file = _FORMATS[file_format]
  parts = {
    _file_name(stem, file_format, index, shards): part
    for index, part in enumerate(_split(specs, shards))
  }
  there = {
    name
    for name in parts
    if resume and os.path.isfile(os.path.join(directory, name))
  }
  total = _num_bytes(specs)
  done = sum(_num_bytes(parts[name]) for name in there)
  with progress.Progress('Writing', total, done) as bar:
    for name in [n for n in parts if n not in there]:
      path = os.path.join(directory, name)
      values = _values(parts[name], scales, seed, bar)
      # The next run replaces an unfinished file, which may be very large.
      with files.replacing(path, 'wb', sole_writer=True) as file:
        write_file(file.name, parts[name], values)
  if shards > 1:
    _write_json(
      os.path.join(directory, f'{stem}.{file_format}.index.json'),
      {
        'metadata': {'total_size': total},
        'weight_map': {s.name: n for n, part in parts.items() for s in part},
      },
    )


def _file_name(stem: str, file_format: str, index: int, shards: int) -> str:
  if shards == 1:
    return f'{stem}.{file_format}'
  return f'{stem}-{index + 1:05d}-of-{shards:05d}.{file_format}'


def _num_bytes(specs: Sequence[tensor_spec.TensorSpec]) -> int:
  return sum(spec.num_bytes for spec in specs)


def _specs(
  variables: Sequence[layout.Variable], dtype: np.dtype
) -> list[tensor_spec.TensorSpec]:
  return [
    tensor_spec.TensorSpec(name, variable.source_shape, dtype)
    for variable in variables
    for name in variable.sources
  ]


def _split(
  specs: Sequence[tensor_spec.TensorSpec], shards: int
) -> Iterator[Sequence[tensor_spec.TensorSpec]]:
  """Splits into runs of about the same number of bytes, none empty."""
  total = sum(spec.num_bytes for spec in specs)
  part, done = [], 0
  remaining_shards = shards
  for index, spec in enumerate(specs):
    part.append(spec)
    done += spec.num_bytes
    full = done >= total * (shards - remaining_shards + 1) / shards
    must_stop = len(specs) - index - 1 == remaining_shards - 1
    if remaining_shards > 1 and (full or must_stop):
      yield part
      part, remaining_shards = [], remaining_shards - 1
  yield part


def _values(
  specs: Sequence[tensor_spec.TensorSpec],
  scales: Set[str],
  seed: int,
  bar: progress.Progress,
) -> Iterator[np.ndarray]:
  def make(spec: tensor_spec.TensorSpec) -> np.ndarray:
    return _value(spec, float(spec.name in scales), seed)

  values = prefetch.in_order(make, specs, _THREADS)
  for spec, value in zip(specs, values):
    yield value
    bar.advance(spec.num_bytes, spec.name)


def _value(spec: tensor_spec.TensorSpec, mean: float, seed: int) -> np.ndarray:
  # Seeded by name, so that values do not depend on --shards or --format.
  rng = np.random.default_rng([seed, *spec.name.encode('ascii')])
  value = rng.standard_normal(spec.shape, np.float32)
  value *= 0.02
  if mean:
    value += mean
  return value.astype(spec.dtype, copy=False)


def _config(
  family: family_lib.Family,
  shape: layout.ModelShape,
  rotary_dim: int,
  dtype: str,
) -> dict[str, Any]:
  """Returns what config.json says."""
  if family.make_config is None:
    raise ValueError(f'{family.title} models do not come from Hugging Face')
  end = shape.vocab_size - 1
  config = hf_config.HFConfig(
    num_layers=shape.num_layers,
    model_dim=shape.model_dim,
    num_heads=shape.num_heads,
    hidden_dim=shape.hidden_dim,
    rotary_dim=rotary_dim,
    vocab_size=shape.vocab_size,
    max_positions=_MAX_POSITIONS,
    layer_norm_epsilon=1e-5,
    tied_embeddings=False,
    bos_token_id=end,
    eos_token_id=end,
    pad_token_id=end,
  )
  return {
    'model_type': family.name,
    'vocab_size': shape.vocab_size,
    'tie_word_embeddings': False,
    'bos_token_id': end,
    'eos_token_id': end,
    'pad_token_id': end,
    'torch_dtype': dtype,
    **family.make_config(config),
  }


def _write_json(path: str, document: dict) -> None:
  with open(path, 'w', encoding='ascii') as f:
    json.dump(document, f, indent=2, sort_keys=True)
    f.write('\n')
