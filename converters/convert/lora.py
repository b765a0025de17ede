"""Merges a LoRA adapter of PEFT into a Hugging Face checkpoint while reading.

An adapter directory has adapter_config.json and adapter_model.safetensors. For
a weight W [outputs, inputs] it has two tensors, A [r, inputs] and B [outputs,
r]. The merged weight is W + scale * B A, where scale is lora_alpha / r, or
lora_alpha / sqrt(r) with use_rslora. For an embedding [tokens, width], A is
[r, tokens], B is [width, r], and the product is transposed. See "Checkpoint
format" and "LoRA" in the documentation of PEFT.
"""

import dataclasses
import json
import os
import re
from typing import Any

import numpy as np

from converters.hf import checkpoint
from converters.hf import safetensors_file
from saxml_ext.pax import errors

_CONFIG = 'adapter_config.json'
_WEIGHTS = 'adapter_model.safetensors'
_FLOATS = ('float32', 'bfloat16', 'float16', 'float64')
_NAME = re.compile(
  r'base_model\.model\.(?P<module>.+?)\.'
  r'(?P<part>lora_[AB]\.weight|lora_embedding_[AB])'
)
_SAVED = re.compile(r'base_model\.model\.(?P<name>.+)')
# PEFT adds these words to the names of modules that it wraps.
_WRAPPERS = re.compile(r'\.(base_layer|modules_to_save(\.default)?)(?=\.)')
# Entries that do not change the merged weights, or that are read below.
_FREE = frozenset(
  'auto_mapping base_model_name_or_path ensure_weight_tying eva_config'
  ' exclude_modules inference_mode layers_pattern layers_to_transform'
  ' lora_alpha lora_dropout megatron_core modules_to_save peft_version'
  ' qalora_group_size r revision runtime_config target_modules task_type'
  ' use_rslora'.split()
)
# The values that other entries may have. An entry that is not listed must be
# empty, because it may be a method that computes another change.
_EMPTY: tuple[Any, ...] = (None, False, {}, [])
_ACCEPTED: dict[str, tuple[Any, ...]] = {
  'peft_type': ('LORA',),
  'bias': ('none',),
  # Other ways to initialize, such as PiSSA, also change the base weights.
  'init_lora_weights': (True, False, 'gaussian', 'eva', 'orthogonal'),
}


@dataclasses.dataclass(frozen=True)
class _Change:
  """The change of one weight [N, M]: left [N, r] times right [r, M]."""

  left: np.ndarray
  right: np.ndarray


class MergedCheckpoint(checkpoint.HFCheckpoint):
  """A checkpoint whose weights include an adapter."""

  def __init__(self, directory: str, lora: str):
    """Opens the files and compares every tensor of the adapter with its weight.

    Args:
      directory: The Hugging Face directory of the model.
      lora: The directory of the adapter.

    Raises:
      errors.CheckpointError: A file is missing, damaged or refused, the adapter
        is of another type, or a tensor does not match the model.
    """
    super().__init__(directory)
    self._lora = lora
    if not os.path.isdir(lora):
      raise errors.CheckpointError(
        f'--lora={lora} is not a directory. Expected one with {_CONFIG} and'
        f' {_WEIGHTS}, as save_pretrained of PEFT writes it.'
      )
    settings = self._read_settings()
    self._rank, self._scale = _rank_and_scale(self._path(_CONFIG), settings)
    self._adapter = safetensors_file.SafetensorsFile(self._path(_WEIGHTS))
    self._saved: dict[str, str] = {}  # Tensors of the adapter by weight.
    parts: dict[str, dict[str, str]] = {}
    for name in self._adapter.shapes:
      if match := _NAME.fullmatch(name):
        weight = self._weight(f'{match["module"]}.weight')
        parts.setdefault(weight, {})[match['part']] = name
      elif match := _SAVED.fullmatch(name):
        self._saved[self._weight(match['name'])] = name
      else:
        raise self._error(name, 'is not a name that PEFT writes')
    for weight, name in self._saved.items():
      self._check_weight(weight, name)
      if self._adapter.shapes[name] != self.shapes[weight]:
        raise self._mismatch(name, self.shapes[weight])
    self._changes = {
      weight: self._change(weight, names) for weight, names in parts.items()
    }
    self._check_complete(settings)

  def read(self, name: str, region: tuple[slice, ...] = ()) -> np.ndarray:
    if name in self._saved:
      tensor = self._adapter.read(self._saved[name])[region]
    else:
      tensor = super().read(name, region)
    change = self._changes.get(name)
    # Weights of other types are refused later, with their name.
    if change is None or tensor.dtype.name not in _FLOATS:
      return tensor
    rows, columns = region or (slice(None), slice(None))
    merged = change.left[rows] @ change.right[:, columns]
    merged *= self._scale
    merged += tensor
    return merged

  def read_scales(self, name: str) -> np.ndarray | None:
    is_changed = name in self._saved or name in self._changes
    return None if is_changed else super().read_scales(name)

  def files(self) -> list[str]:
    return [*super().files(), self._path(_CONFIG), self._path(_WEIGHTS)]

  def file_of(self, name: str) -> str:
    base = super().file_of(name)
    changed = name in self._saved or name in self._changes
    return f'{base} with {self._path(_WEIGHTS)}' if changed else base

  def _weight(self, name: str) -> str:
    """Returns the weight that a name in the adapter stands for."""
    name = _WRAPPERS.sub('', name)
    # Since version 5, transformers calls the head of every family lm_head, but
    # files keep the older name.
    if name == 'lm_head.weight' and name not in self.shapes:
      (name,) = self.family.tensors['head']
    return name

  def _path(self, name: str) -> str:
    return os.path.join(self._lora, name)

  def _read_settings(self) -> dict[str, Any]:
    path = self._path(_CONFIG)
    settings = checkpoint.read_json(path)
    for key, value in {'peft_type': None, **settings}.items():
      accepted = _ACCEPTED.get(key, _EMPTY)
      if key not in _FREE and value not in accepted:
        known = ', '.join(map(str, accepted)) if key in _ACCEPTED else 'none'
        raise errors.CheckpointError(
          f'{path}: {key[:100]} is {str(value)[:100]!r}. Supported: {known}.'
          ' Merge this adapter with PEFT (merge_and_unload) and convert the'
          ' result.'
        )
    return settings

  def _change(self, weight: str, names: dict[str, str]) -> _Change:
    """Returns the change of a weight, after checking the shapes."""
    embeds = any('embedding' in part for part in names)
    suffix = ('lora_embedding_{}' if embeds else 'lora_{}.weight').format
    if set(names) != {suffix('A'), suffix('B')}:
      name = next(iter(names.values()))
      raise self._error(name, f'has no pair {suffix("A")} and {suffix("B")}')
    self._check_weight(weight, names[suffix('A')])
    if len(self.shapes[weight]) != 2:
      raise self._error(
        names[suffix('A')], f'changes {weight}, which is not a matrix'
      )
    outputs, inputs = self.shapes[weight][:: -1 if embeds else 1]
    pair = []
    for letter, shape in (
      ('B', (outputs, self._rank)),
      ('A', (self._rank, inputs)),
    ):
      name = names[suffix(letter)]
      if self._adapter.shapes[name] != shape:
        raise self._mismatch(name, shape)
      tensor = self._adapter.read(name)
      if tensor.dtype.name not in _FLOATS:
        raise self._error(
          name,
          f'has type {tensor.dtype.name}. Expected one of {", ".join(_FLOATS)}',
        )
      pair.append(tensor.astype(np.float32, copy=False))
    left, right = (matrix.T for matrix in pair[::-1]) if embeds else pair
    return _Change(left, right)

  def _check_weight(self, weight: str, name: str) -> None:
    """Raises an error unless the model has a weight that may be changed."""
    if weight not in self.shapes:
      raise self._error(
        name, f'changes {weight}, which the model does not have'
      )
    (embedding,), (head,) = (
      self.family.tensors[field] for field in ('embedding', 'head')
    )
    tied = self.config.tied_embeddings and head not in self.shapes
    if tied and weight == embedding:
      raise self._error(
        name,
        f'changes {weight}, which is also the head of this model. PEFT may'
        ' have trained it as one of the two only. Merge the adapter with PEFT',
      )

  def _check_complete(self, settings: dict[str, Any]) -> None:
    """Raises an error if a weight that the adapter names is missing in it."""
    if settings.get('layers_to_transform') or settings.get('exclude_modules'):
      return
    targets = settings.get('target_modules')
    for target in targets if isinstance(targets, list) else ():
      weights = {
        weight
        for weight in self.shapes
        if f'.{weight}'.endswith(f'.{self._weight(f"{target}.weight")}')
      }
      missing = (
        sorted(weights.difference(self._changes)) if weights else [target]
      )
      if missing:
        raise errors.CheckpointError(
          f'{self._path(_WEIGHTS)} has no tensors for {missing[0]}, which'
          f' target_modules of {_CONFIG} includes. Download the adapter again,'
          ' or use the model that it was trained on.'
        )

  def _mismatch(
    self, name: str, expected: tuple[int, ...]
  ) -> errors.CheckpointError:
    return self._error(
      name,
      f'has shape {list(self._adapter.shapes[name])}. Expected'
      f' {list(expected)}',
    )

  def _error(self, name: str, text: str) -> errors.CheckpointError:
    return errors.CheckpointError(
      f'{self._path(_WEIGHTS)}: tensor {name[:200]} {text}. Use an adapter that'
      ' was trained on this model.'
    )


def _rank_and_scale(
  path: str, settings: dict[str, Any]
) -> tuple[int, np.float32]:
  rank: Any = settings.get('r')
  alpha: Any = settings.get('lora_alpha')
  if type(rank) is not int or not 0 < rank < 1 << 31:
    raise errors.CheckpointError(
      f'{path}: r is {str(rank)[:100]!r}. Expected a positive integer.'
    )
  if type(alpha) not in (int, float) or not abs(alpha) < 1e9:
    raise errors.CheckpointError(
      f'{path}: lora_alpha is {json.dumps(alpha)[:100]}. Expected a number.'
    )
  rooted = settings.get('use_rslora')
  if rooted not in (None, False, True):
    raise errors.CheckpointError(
      f'{path}: use_rslora is {str(rooted)[:100]!r}. Expected true or false.'
    )
  return rank, np.float32(alpha / (rank**0.5 if rooted else rank))
