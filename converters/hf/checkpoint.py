"""A Hugging Face checkpoint directory: its config, and its tensors by name.

Understood are, in this order of preference, model.safetensors, a sharded
model.safetensors.index.json, pytorch_model.bin and a sharded
pytorch_model.bin.index.json. Files are memory-mapped; nothing in them is run.
"""

from collections.abc import Callable, Mapping
import json
import mmap
import os
from typing import Any

import numpy as np

from converters.hf import safetensors_file
from converters.hf import torch_file
from saxml_ext.families import all as families
from saxml_ext.families import family as family_lib
from saxml_ext.families import hf_config
from saxml_ext.pax import errors

_LAYOUTS = (
  ('model.safetensors', safetensors_file.SafetensorsFile),
  ('pytorch_model.bin', torch_file.TorchFile),
)
# Files of weights, the preferred format first.
WEIGHTS = tuple(name for name, _ in _LAYOUTS)

# The index of GPT-J 6B's shards has 30 KB. JSON may take far more memory than
# its text.
_MAX_JSON_BYTES = 1 << 20


class HFCheckpoint:
  """The weights and the config of one directory.

  Attributes:
    directory: the directory.
    family: The family of the model.
    config: what config.json says.
    shapes: shape of each tensor by name, over all files.
  """

  def __init__(self, directory: str):
    """Opens every file and checks its structure, reading no weights.

    Raises:
      errors.CheckpointError: a file is missing, damaged or refused.
    """
    self.directory = directory
    if not os.path.isdir(directory):
      raise errors.CheckpointError(
        f'{directory} is not a directory; expected one that holds '
        'config.json and the weights, as save_pretrained writes it'
      )
    self.family, self.config = read_config(directory)
    opener, paths = weight_files(directory)
    self._files = {path: opener(path) for path in paths}
    self._file_of: dict[str, str] = {}
    self._in_use: set[str] = set()
    for path, file in self._files.items():
      for name in file.shapes:
        if name in self._file_of:
          raise errors.CheckpointError(
            f'tensor {name} is in {self._file_of[name]} and in {path}'
          )
        self._file_of[name] = path
    self.shapes: Mapping[str, tuple[int, ...]] = {
      name: self._files[path].shapes[name]
      for name, path in self._file_of.items()
    }

  def read(self, name: str) -> np.ndarray:
    """Returns a read-only view of one tensor, in the type it is stored in."""
    file = self._files[self._file_of[name]]
    if name not in self._in_use:
      # Transposed reads would make the system guess wrong.
      file.advise(name, mmap.MADV_WILLNEED)
      self._in_use.add(name)
    return file.read(name)

  def release(self, name: str) -> None:
    """Gives back the memory of one tensor, which can be read again."""
    self._files[self._file_of[name]].advise(name, mmap.MADV_DONTNEED)
    self._in_use.discard(name)

  def files(self) -> list[str]:
    """Paths of all files that decide what the checkpoint is."""
    return [os.path.join(self.directory, 'config.json'), *self._files]

  def file_of(self, name: str) -> str:
    """Path of the file that holds a tensor, for messages."""
    return self._file_of[name]


def weight_files(directory: str) -> tuple[Callable, list[str]]:
  """What opens the files of weights of a directory, and their paths.

  Raises:
    errors.CheckpointError: There are none, or their index is damaged.
  """
  for name, opener in _LAYOUTS:
    path = os.path.join(directory, name)
    if os.path.exists(path):
      return opener, [path]
    index = f'{path}.index.json'
    if os.path.exists(index):
      return opener, _shards(directory, index)
  raise errors.CheckpointError(
    f'{directory} has no weights; expected one of '
    + ', '.join(f'{name}[.index.json]' for name in WEIGHTS)
  )


def _shards(directory: str, index: str) -> list[str]:
  weight_map = read_json(index).get('weight_map')
  if not isinstance(weight_map, dict) or not weight_map:
    raise errors.CheckpointError(
      f'{index} has no weight_map; expected the name of a file for each tensor'
    )
  names = set()
  for tensor, name in weight_map.items():
    if (
      not isinstance(name, str)
      or name != os.path.basename(name)
      or name in ('', '.', '..')
      or '\0' in name
    ):
      raise errors.CheckpointError(
        f'{index}: tensor {tensor[:100]} is said to be in '
        f'{str(name)[:100]!r}; expected the name of a file in the same '
        'directory'
      )
    names.add(name)
  return [os.path.join(directory, name) for name in sorted(names)]


def read_json(path: str) -> dict[str, Any]:
  """Reads a JSON object.

  Raises:
    errors.CheckpointError: the file is missing, too big or no JSON object.
  """
  with errors.reading(path, 'expected the file that save_pretrained writes'):
    with open(path, 'rb') as f:
      data = f.read(_MAX_JSON_BYTES + 1)
  if len(data) > _MAX_JSON_BYTES:
    raise errors.CheckpointError(
      f'{path} has more than {_MAX_JSON_BYTES} bytes, far more than any model'
      ' needs there; replace it by the one of the model'
    )
  try:
    document = json.loads(data)
  except (ValueError, RecursionError) as e:
    raise errors.CheckpointError(f'{path} is not JSON: {e}') from e
  if not isinstance(document, dict):
    raise errors.CheckpointError(
      f'{path} holds a {type(document).__name__}; expected a JSON object'
    )
  return document


def read_config(
  directory: str,
) -> tuple[family_lib.Family, hf_config.HFConfig]:
  """Reads `config.json`; returns the family of the model and its sizes.

  Raises:
    errors.CheckpointError: It is missing, of no known family, or wants code of
      its own to be run.
  """
  path = os.path.join(directory, 'config.json')
  document = read_json(path)
  if 'auto_map' in document:
    raise errors.CheckpointError(
      f'{path} names code that comes with the checkpoint (auto_map); it is '
      'refused and was not run. Known models need none: remove the entry if '
      'you trust the weights'
    )
  name = document.get('model_type')
  family = families.FAMILIES.get(name) if isinstance(name, str) else None
  if family is None or family.config is None:
    known = ', '.join(families.convertible())
    raise errors.CheckpointError(
      f'{path}: model_type is {name!r}; known are {known}'
    )
  return family, hf_config.read(path, document, family.config)
