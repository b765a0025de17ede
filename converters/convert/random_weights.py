"""Writes random weights to disk as a Hugging Face checkpoint, as a stream."""

from collections.abc import Iterable, Iterator, Sequence, Set
import dataclasses
import os

import numpy as np

from converters.convert import model_source
from converters.convert import pipeline
from converters.hf import safetensors_file
from converters.hf import torch_file
from converters.hf import weights_file
from saxml_ext.common import files
from saxml_ext.families import all as families
from saxml_ext.families import family as family_lib
from saxml_ext.families import hf_config
from saxml_ext.families import layout

_DEFAULT = families.named(None)
_THREADS = 2
_FORMATS = {
  'safetensors': ('model', safetensors_file.write),
  'bin': ('pytorch_model', torch_file.write),
}


def write(
  directory: str,
  config: hf_config.HFConfig,
  file_format: str = 'safetensors',
  shards: int = 1,
  seed: int = 0,
  dtype: str = 'float32',
  resume: bool = False,
  family: family_lib.Family = _DEFAULT,
) -> None:
  """Writes config.json and the weights; each file appears only when complete.

  Args:
    directory: The output directory, which is created if it does not exist.
    config: The sizes of the model. Its last token begins and ends texts.
    file_format: "safetensors" or "bin".
    shards: The number of files of weights.
    seed: The seed of the weights.
    dtype: A key of model_source.DTYPES.
    resume: True to keep existing files of weights. An earlier call with the
      same arguments must have written them.
    family: The family of the model.

  Raises:
    ValueError: There are more shards than tensors, or the family has no Hugging
      Face format.
    OSError: A file cannot be written.
  """
  if family.config is None:
    raise ValueError(f'{family.title} models have no Hugging Face format.')
  os.makedirs(directory, exist_ok=True)
  end = config.vocab_size - 1
  config = dataclasses.replace(config, bos_id=end, eos_id=end, pad_id=end)
  files.write_json(
    os.path.join(directory, 'config.json'),
    {
      'torch_dtype': dtype,
      **hf_config.document(family.name, config, family.config),
    },
    sort_keys=True,
  )
  variables = layout.variables(config, config.tied_embeddings, family)
  # The embedding of a model with a tied head is the source of two variables.
  shapes = {name: v.source_shape for v in variables for name in v.sources}
  specs = [
    weights_file.TensorSpec(name, shape, model_source.DTYPES[dtype])
    for name, shape in shapes.items()
  ]
  # The scales of norms, whose random values are near 1.
  scales = {
    name for v in variables if v.name.endswith('.scale') for name in v.sources
  }
  if shards > len(specs):
    raise ValueError(f'--shards={shards} exceeds the {len(specs)} tensors.')
  stem, write_file = _FORMATS[file_format]
  parts = {
    f'{stem}-{i:05d}-of-{shards:05d}.{file_format}': part
    for i, part in enumerate(_split(specs, shards), start=1)
  }
  if shards == 1:
    parts = {f'{stem}.{file_format}': specs}
  paths = {name: os.path.join(directory, name) for name in parts}
  kept = {n for n, path in paths.items() if resume and os.path.isfile(path)}
  total = _num_bytes(specs)
  done = sum(_num_bytes(parts[name]) for name in kept)
  with pipeline.Progress('Writing', total, done) as bar:
    for name in [n for n in parts if n not in kept]:
      values = _values(parts[name], scales, seed, bar)
      # A killed run may leave a very large unfinished file. With `sole_writer`,
      # the next run replaces it.
      with files.replacing(paths[name], 'wb', sole_writer=True) as file:
        write_file(file.name, parts[name], values)
  if shards > 1:
    files.write_json(
      os.path.join(directory, f'{stem}.{file_format}.index.json'),
      {
        'metadata': {'total_size': total},
        'weight_map': {s.name: n for n, part in parts.items() for s in part},
      },
      sort_keys=True,
    )


def _num_bytes(specs: Iterable[weights_file.TensorSpec]) -> int:
  return sum(spec.num_bytes for spec in specs)


def _split(
  specs: Sequence[weights_file.TensorSpec], shards: int
) -> Iterator[Sequence[weights_file.TensorSpec]]:
  """Splits tensors into nonempty groups of about the same number of bytes."""
  total = _num_bytes(specs)
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
  specs: Sequence[weights_file.TensorSpec],
  scales: Set[str],
  seed: int,
  bar: pipeline.Progress,
) -> Iterator[np.ndarray]:
  def make(spec: weights_file.TensorSpec) -> np.ndarray:
    # The seed includes the name, so values do not depend on --shards or
    # --format.
    rng = np.random.default_rng([seed, *spec.name.encode('ascii')])
    value = rng.standard_normal(spec.shape, np.float32)
    value *= 0.02
    if spec.name in scales:
      value += 1.0
    return value.astype(spec.dtype, copy=False)

  for spec, value in zip(specs, pipeline.in_order(make, specs, _THREADS)):
    yield value
    bar.advance(spec.num_bytes, spec.name)
