"""Reads Meta's Llama checkpoints: params.json and consolidated.NN.pth files.

Each file is a shard of the model. It has every tensor: norms in full, and of
each matrix the part that one of Meta's devices held. Rotary positions rotate
neighboring dimensions, as in PAX checkpoints.
"""

import dataclasses
import json
import os
import re
import sys

import msgspec
import numpy as np

from converters.hf import checkpoint
from converters.hf import torch_file
from saxml_ext.families import hf_config
from saxml_ext.families import llama
from saxml_ext.families import llama_sizes
from saxml_ext.pax import errors

_PARAMS = 'params.json'
_SHARD = re.compile(r'consolidated\.(\d{2})\.pth', re.ASCII)
_EMBEDDING = 'tok_embeddings.weight'
_LAYER = 'layers.{layer}.'
# The axis along which the files split each matrix: outputs or inputs. That of
# the embedding depends on the version.
_AXES = {
  **dict.fromkeys(('wq', 'wk', 'wv', 'w1', 'w3', 'output'), 0),
  **dict.fromkeys(('wo', 'w2'), 1),
}
_TENSORS = {
  'embedding': (_EMBEDDING,),
  'layers.norm.scale': (_LAYER + 'attention_norm.weight',),
  'layers.qkv': tuple(f'{_LAYER}attention.w{x}.weight' for x in 'qkv'),
  'layers.post': (_LAYER + 'attention.wo.weight',),
  'layers.ff_norm.scale': (_LAYER + 'ffn_norm.weight',),
  'layers.gate': (_LAYER + 'feed_forward.w1.weight',),
  'layers.up': (_LAYER + 'feed_forward.w3.weight',),
  'layers.down': (_LAYER + 'feed_forward.w2.weight',),
  'final_norm.scale': ('norm.weight',),
  'head': ('output.weight',),
}
_FAMILY = dataclasses.replace(
  llama.FAMILY,
  tensors=_TENSORS,
  rotates_halves=False,
  buffers=re.compile(
    r'(layers\.\d+\.attention\.inner_attention\.)?rope\.freqs'
  ),
)


# The upper bounds of the entries of params.json. All are above 0.
_LIMITS = {
  **dict.fromkeys(
    ('dim', 'n_layers', 'n_heads', 'n_kv_heads', 'multiple_of'), 1 << 31
  ),
  'norm_eps': 1,
  'ffn_dim_multiplier': 100,
  'rope_theta': 1e9,
}


class _Params(  # type: ignore[call-arg]
  msgspec.Struct, forbid_unknown_fields=True
):
  """The contents of params.json. A vocab_size of -1 means that of the files."""

  dim: int
  n_layers: int
  n_heads: int
  multiple_of: int
  norm_eps: float
  vocab_size: int = -1
  n_kv_heads: int | None = None
  ffn_dim_multiplier: float | None = None
  rope_theta: float = 10000.0
  use_scaled_rope: bool = False
  max_batch_size: int | None = None
  max_seq_len: int | None = None

  def __post_init__(self) -> None:
    for name, limit in _LIMITS.items():
      value = getattr(self, name)
      if value is not None and not 0 < value < limit:
        raise ValueError(
          f'{name} is {value}. Expected a number between 0 and {limit:g}.'
        )

  @property
  def hidden_dim(self) -> int:
    """The width of the feed-forward layer, by the formula of Meta's code."""
    hidden = 2 * 4 * self.dim // 3
    if self.ffn_dim_multiplier is not None:
      hidden = int(self.ffn_dim_multiplier * hidden)
    return -(-hidden // self.multiple_of) * self.multiple_of


def is_one(directory: str) -> bool:
  """Returns True if a directory has Meta's files and is not Hugging Face's."""
  if not os.path.isdir(directory):
    return False
  names = os.listdir(directory)
  return 'config.json' not in names and any(map(_SHARD.fullmatch, names))


class MetaCheckpoint(checkpoint.Checkpoint):
  """The weights of one directory; see checkpoint.Checkpoint.

  A tensor is the concatenation of its parts in all files. Only the requested
  region of it is ever in memory.
  """

  def __init__(self, directory: str, size: str = ''):
    """Opens every file and checks its structure, without reading weights.

    Args:
      directory: The directory.
      size: A key of llama_sizes.SIZES, which replaces a missing params.json; ''
        if there is none.

    Raises:
      errors.CheckpointError: A file is missing, damaged or refused, or does not
        have the same tensors as the first file.
    """
    self.directory = directory
    self.family = _FAMILY
    self._paths = _shards(directory)
    self._shards = [torch_file.TorchFile(path) for path in self._paths]
    params = self._read_params()
    if params is None and not size:
      raise errors.CheckpointError(
        f'{directory} has no {_PARAMS}. Copy it from the original model, or set'
        ' --model-size.'
      )
    self._dim = params.dim if params else llama_sizes.SIZES[size].model_dim
    self._check_shards()
    self.shapes = {name: self._joined(name) for name in self._shards[0].shapes}
    if params:
      self.config_name = _PARAMS
      self.config = self._config(params)
    else:
      self.config_name = f'--model-size={size}'
      self.config = llama_sizes.SIZES[size]
      print(
        f'{directory} has no {_PARAMS}. Assuming'
        f' norm_eps={self.config.ln_epsilon:g},'
        f' rope_theta={self.config.rotary_base:g} and'
        f' use_scaled_rope={bool(self.config.rotary_scaling)}. If the model has'
        ' other values, copy its file.',
        file=sys.stderr,
      )

  def read(self, name: str, region: tuple[slice, ...] = ()) -> np.ndarray:
    region = region or tuple(slice(0, size) for size in self.shapes[name])
    axis = self._axis(name)
    if axis is None:
      return self._replica(name)[region]
    parts, end = [], 0
    for shard in self._shards:
      begin, end = end, end + shard.shapes[name][axis]
      first, last = (
        min(max(bound, begin), end) - begin
        for bound in (region[axis].start, region[axis].stop)
      )
      if first < last:
        own = (*region[:axis], slice(first, last), *region[axis + 1 :])
        parts.append(shard.read(name)[own])
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis)

  def release(self, name: str, done: bool = True) -> None:
    for shard in self._shards:
      shard.release(name, done)

  def files(self) -> list[str]:
    params = os.path.join(self.directory, _PARAMS)
    return [*([params] if os.path.exists(params) else []), *self._paths]

  def file_of(self, name: str) -> str:
    if len(self._paths) == 1:
      return self._paths[0]
    return f'{self._paths[0]} to {os.path.basename(self._paths[-1])}'

  def _axis(self, name: str) -> int | None:
    """Returns the axis along which the files split a tensor, or None."""
    if name == _EMBEDDING:
      # Llama 1 and 2 split the width, Llama 3 splits the tokens.
      width = self._shards[0].shapes[name][-1:]
      return 0 if width == (self._dim,) else 1
    parts = name.split('.')
    return _AXES.get(parts[-2]) if len(parts) > 1 else None

  def _joined(self, name: str) -> tuple[int, ...]:
    shape = list(self._shards[0].shapes[name])
    axis = self._axis(name)
    if axis is not None and len(shape) > axis:
      shape[axis] = sum(shard.shapes[name][axis] for shard in self._shards)
    return tuple(shape)

  def _replica(self, name: str) -> np.ndarray:
    """Returns a tensor that is the same in all files."""
    first, *copies = (shard.read(name) for shard in self._shards)
    for path, other in zip(self._paths[1:], copies):
      if not np.array_equal(first.view(np.uint8), other.view(np.uint8)):
        raise errors.CheckpointError(
          f'tensor {name} of {path} differs from that of {self._paths[0]}.'
          ' Expected equal values. Use the files of a single model.'
        )
    return first

  def _check_shards(self) -> None:
    expected = self._shards[0].shapes
    for path, shard in zip(self._paths, self._shards):
      names = set(shard.shapes)
      for name in sorted(names.symmetric_difference(expected)):
        state = 'has' if name in names else 'has no'
        raise errors.CheckpointError(
          f'{path} {state} tensor {name[:200]}, unlike {self._paths[0]}.'
          ' Expected parts of the same tensors in all files.'
        )
      for name, shape in shard.shapes.items():
        if shape != expected[name]:
          raise errors.CheckpointError(
            f'tensor {name[:200]} has shape {list(shape)} in {path}, and'
            f' {list(expected[name])} in {self._paths[0]}. Expected parts of'
            ' the same size.'
          )

  def _read_params(self) -> _Params | None:
    path = os.path.join(self.directory, _PARAMS)
    if not os.path.lexists(path):
      return None
    document = checkpoint.read_json(path)
    try:
      return msgspec.convert(document, _Params)
    except msgspec.ValidationError as e:
      raise errors.CheckpointError(
        f'{path} does not describe a Llama model: {e}. Its contents are'
        f' {json.dumps(document)[:300]}. Replace it with the original file.'
      ) from e

  def _config(self, params: _Params) -> hf_config.HFConfig:
    tokens = params.vocab_size
    if tokens == -1:
      tokens = (self.shapes.get(_EMBEDDING) or (0,))[0]
    try:
      return hf_config.HFConfig(
        params.n_layers,
        params.dim,
        params.n_heads,
        params.hidden_dim,
        tokens,
        num_kv_heads=params.n_kv_heads or params.n_heads,
        rotary_dim=params.dim // params.n_heads,
        **llama_sizes.settings(
          params.dim,
          tokens,
          params.rope_theta,
          params.norm_eps,
          params.use_scaled_rope,
        ),
      )
    except errors.CheckpointError as e:
      path = os.path.join(self.directory, _PARAMS)
      raise errors.CheckpointError(f'{path}: {e}') from e


def check_size(opened: checkpoint.Checkpoint, size: str) -> None:
  """Compares the sizes of a model with the size that the user states.

  Args:
    opened: The checkpoint.
    size: A key of llama_sizes.SIZES.

  Raises:
    errors.CheckpointError: A size differs.
  """
  expected = llama_sizes.SIZES[size]
  for name in (
    'num_layers',
    'model_dim',
    'num_heads',
    'kv_heads',
    'hidden_dim',
    'vocab_size',
  ):
    one, other = getattr(opened.config, name), getattr(expected, name)
    if one != other:
      raise errors.CheckpointError(
        f'{opened.directory}: {opened.config_name} has {name} {one}, but'
        f' --model-size={size} means {other}. Correct the flag or leave it out.'
      )


def _shards(directory: str) -> list[str]:
  numbers = sorted(
    int(match[1])
    for name in os.listdir(directory)
    if (match := _SHARD.fullmatch(name))
  )
  if numbers != list(range(len(numbers))):
    raise errors.CheckpointError(
      f'{directory} has the files'
      f' {", ".join(f"{i:02d}" for i in numbers)} of consolidated.NN.pth.'
      ' Expected consecutive numbers from 00. Copy the missing files.'
    )
  return [os.path.join(directory, f'consolidated.{i:02d}.pth') for i in numbers]
