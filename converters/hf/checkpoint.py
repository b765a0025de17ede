"""Reads a Hugging Face checkpoint directory: its config and its tensors.

The supported formats are, in order of preference: model.safetensors, a sharded
model.safetensors.index.json, pytorch_model.bin, and a sharded
pytorch_model.bin.index.json. Shards without an index and variants such as
model.fp16.safetensors are read, too. Files are memory-mapped. No code in them is run.
"""

from collections.abc import Callable, Iterable, Mapping
import itertools
import json
import os
import re
from typing import Any, Protocol

import numpy as np

from converters.hf import formats
from converters.hf import gguf_config
from converters.hf import gguf_file
from converters.hf import safetensors_file
from converters.hf import torch_file
from converters.hf import weights_file
from converters.hf.quantized import fp8
from converters.hf.quantized import methods
from converters.hf.quantized import scheme
from saxml_ext.common import files
from saxml_ext.families import all as families
from saxml_ext.families import family as family_lib
from saxml_ext.families import hf_config
from saxml_ext.pax import description
from saxml_ext.pax import errors

_LAYOUTS = (
  ('model.safetensors', safetensors_file.SafetensorsFile),
  ('pytorch_model.bin', torch_file.TorchFile),
)
# The file names of weights, the preferred format first.
WEIGHTS = tuple(name for name, _ in _LAYOUTS)

# The index of the shards of GPT-J 6B has 30 KB. Parsed JSON may need much more
# memory than its text.
_MAX_JSON_BYTES = 1 << 20


class Checkpoint(Protocol):
  """The weights and the config of one directory, in any format.

  Attributes:
    directory: The directory.
    family: The family of the model, with the names of the tensors.
    config: The sizes of the model.
    config_name: The origin of the sizes, for messages.
    shapes: The shape of each tensor by name, over all files.
    quantization: The types of tensors that have at most 8 bits per number; ''
      if there are none. They are dequantized to float32 when they are read.
    float_type: The type of the matrices; see `weights_file.float_type`.
  """

  directory: str
  family: family_lib.Family
  config: hf_config.HFConfig
  config_name: str
  shapes: Mapping[str, tuple[int, ...]]
  quantization: str = ''
  float_type: str = 'float32'

  def read(self, name: str, region: tuple[slice, ...] = ()) -> np.ndarray:
    """Returns a region of one tensor; () means the whole tensor.

    Args:
      name: The tensor.
      region: The range of each dimension.

    Raises:
      errors.CheckpointError: The tensor is damaged.
    """

  def read_scales(self, name: str) -> np.ndarray | None:
    """Returns the scale of each row of a matrix with symmetric int8 codes.

    Args:
      name: The tensor.

    Returns:
      The scales, [rows] float32, or None for another tensor.
    """
    del name
    return None

  def release(self, name: str, done: bool = True) -> None:
    """Frees the memory of one tensor, which can be read again.

    Args:
      name: The tensor.
      done: False if other regions of it are read next. The file is then not
        read ahead a second time.
    """

  def files(self) -> list[str]:
    """Returns the paths of all files that the checkpoint consists of."""

  def file_of(self, name: str) -> str:
    """Returns the path of the file that contains a tensor, for messages."""


class HFCheckpoint(Checkpoint):
  """The weights and the config of a Hugging Face directory."""

  config_name = 'config.json'

  def __init__(self, directory: str):
    """Opens every file and checks its structure, without reading weights.

    Args:
      directory: The checkpoint directory.

    Raises:
      errors.CheckpointError: A file is missing, damaged or refused.
    """
    self.directory = directory
    if not os.path.isdir(directory):
      raise errors.CheckpointError(
        f'{directory} is not a directory. Expected a directory with '
        'config.json and the weights, as save_pretrained writes it.'
      )
    self.family, self.config = read_config(directory)
    opener, paths = weight_files(directory)
    for path in filter(os.path.exists, paths):  # The opener names missing ones.
      with errors.reading(path):
        os.close(files.open_regular(path))
    self._files: dict[str, weights_file.MappedFile] = {
      path: opener(path) for path in paths
    }
    (embedding,) = self.family.tensors['embedding']
    prefix, _, bare = embedding.partition('.')
    # Bare models, such as LlamaModel, have no prefix in their files.
    is_bare = any(bare in file.shapes for file in self._files.values())
    names = itertools.chain(*self.family.tensors.values())
    outer = {name for name in names if not name.startswith(f'{prefix}.')}
    # The path and the stored name of each tensor.
    self._origins: dict[str, tuple[str, str]] = {}
    for path, file in self._files.items():
      for stored in file.shapes:
        name = stored
        if is_bare and stored not in outer:
          name = f'{prefix}.{stored}'
        if name in self._origins:
          raise errors.CheckpointError(
            f'tensor {name} is in both {self._origins[name][0]} and {path}.'
          )
        self._origins[name] = path, stored
    self.shapes = {
      name: self._files[path].shapes[stored]
      for name, (path, stored) in self._origins.items()
    }
    self._find_quantized()

  def _find_quantized(self) -> None:
    """Replaces codes and scales by the matrices that are made of them."""
    path = os.path.join(self.directory, 'config.json')
    method = methods.read(path, read_json(path))
    # The matrix that was dequantized last, and its name.
    self._dequantized: tuple[str, np.ndarray] | None = None
    self._weights: Mapping[str, scheme.Weight] = {}
    if method:
      tensors = scheme.Tensors(
        self.shapes, self._type_of, self._read_stored, self.file_of
      )
      self._weights = method.find(tensors)
    used = {n for weight in self._weights.values() for n in weight.tensors}
    floats = {}
    for name, shape in self.shapes.items():
      if name in used or (method and self._is_without_effect(name)):
        continue
      if self._type_of(name) == fp8.TYPE:
        raise errors.CheckpointError(
          f'{self.file_of(name)}: tensor {name} has the type F8_E4M3 of'
          ' quantized weights, but config.json does not describe it.'
          f' {scheme.DEQUANTIZE}'
        )
      floats[name] = shape
    if method and self._weights:
      self.quantization = method.title
    stored = {self._origins[name][1] for name in used}
    self.float_type = weights_file.float_type(self._files.values(), stored)
    self.shapes = floats | {n: w.shape for n, w in self._weights.items()}

  def _is_without_effect(self, name: str) -> bool:
    """Returns True for a tensor that only quantized models have."""
    stem = name.removesuffix('.bias')
    if name == stem or f'{stem}.weight' not in self._weights:
      return bool(scheme.IGNORED.fullmatch(name))
    # AutoGPTQ gives every matrix a bias. It is zero if the model has none.
    expected = itertools.chain(*self.family.tensors.values())
    is_known = re.sub(r'\.\d+\.', '.{layer}.', name, count=1) in expected
    return not is_known and not self._read_stored(name).any()

  def read(self, name: str, region: tuple[slice, ...] = ()) -> np.ndarray:
    if name not in self._weights:
      return self._read_stored(name)[region]
    last = self._dequantized
    if last is None or last[0] != name:
      last = self._dequantized = None  # Frees the memory of another matrix.
      last = self._dequantized = name, self._weights[name].read()
      self._release_stored(self._weights[name].tensors)
    return last[1][region]

  def read_scales(self, name: str) -> np.ndarray | None:
    weight = self._weights.get(name)
    return weight.read_scales() if weight and weight.read_scales else None

  def release(self, name: str, done: bool = True) -> None:
    if name not in self._weights:
      self._release_stored([name], done)
    elif done:
      self._dequantized = None

  def _read_stored(self, name: str) -> np.ndarray:
    path, stored = self._origins[name]
    return self._files[path].read(stored)

  def _type_of(self, name: str) -> str:
    path, stored = self._origins[name]
    return self._files[path].type_of(stored).name

  def _release_stored(self, names: Iterable[str], done: bool = True) -> None:
    for path, stored in map(self._origins.__getitem__, names):
      self._files[path].release(stored, done)

  def files(self) -> list[str]:
    return [os.path.join(self.directory, 'config.json'), *self._files]

  def file_of(self, name: str) -> str:
    weight = self._weights.get(name)
    return self._origins[weight.tensors[0] if weight else name][0]


def weight_files(directory: str) -> tuple[Callable, list[str]]:
  """Returns the class that opens the weights of a directory, and their paths.

  Args:
    directory: The checkpoint directory.

  Raises:
    errors.CheckpointError: There are no weights, or their index is damaged.
  """
  for name, opener in _LAYOUTS:
    path = os.path.join(directory, name)
    if os.path.exists(path):
      return opener, [path]
    index = f'{path}.index.json'
    if os.path.exists(index):
      return opener, _shards(directory, index)
    if names := formats.weight_names(directory, name):
      return opener, [os.path.join(directory, name) for name in names]
  listed = ', '.join(f'{name}[.index.json]' for name in WEIGHTS)
  raise errors.CheckpointError(
    f'{directory} has no weights. Expected one of {listed}.'
    f' {formats.contents(directory)}'
  )


def _shards(directory: str, index: str) -> list[str]:
  weight_map = read_json(index).get('weight_map')
  if not isinstance(weight_map, dict) or not weight_map:
    raise errors.CheckpointError(
      f'{index} has no weight_map. Expected a file name for each tensor.'
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
        f'{index} maps tensor {tensor[:100]} to {str(name)[:100]!r}. Expected'
        ' the name of a file in the same directory.'
      )
    names.add(name)
  return [os.path.join(directory, name) for name in sorted(names)]


def read_json(path: str) -> dict[str, Any]:
  """Reads a JSON object.

  Args:
    path: The JSON file.

  Raises:
    errors.CheckpointError: The file is missing, too large or not a JSON object.
  """
  with errors.reading(path, 'Expected the file that save_pretrained writes.'):
    data = files.read_file(
      path, _MAX_JSON_BYTES, links_within=os.path.dirname(path) or '.'
    )
  formats.check_pointer(path, data)
  try:
    document = json.loads(data)
  except (ValueError, RecursionError) as e:
    raise errors.CheckpointError(f'{path} is not JSON: {e}') from e
  if not isinstance(document, dict):
    raise errors.CheckpointError(
      f'{path} contains a {type(document).__name__}. Expected a JSON object.'
    )
  return document


def read_config(directory: str) -> tuple[family_lib.Family, hf_config.HFConfig]:
  """Reads `config.json`; returns the family of the model and its sizes.

  The end ids come from generation_config.json, if it has any.

  Args:
    directory: The checkpoint directory, or the path of a GGUF file, whose
      metadata has the sizes.

  Raises:
    errors.CheckpointError: A file is missing or malformed, names an unknown
      family, or requires custom code.
  """
  if os.path.isfile(directory):
    return gguf_config.read(directory, gguf_file.GGUFFile(directory))
  path = os.path.join(directory, 'config.json')
  if not os.path.exists(path):
    raise errors.CheckpointError(
      f'{directory} has no config.json. {formats.contents(directory)}'
    )
  document = read_json(path)
  methods.read(path, document)
  family = families.matching(document)
  if family is None or family.config is None:
    known = ', '.join(families.model_types())
    raise errors.CheckpointError(
      f'{path}: model_type {document.get("model_type")!r} is not supported.'
      f' Available: {known}.'
    )
  if not _is_known_code(document.get('auto_map'), family.config.model_class):
    raise errors.CheckpointError(
      f'{path} refers to code in the checkpoint (auto_map). The code was not'
      ' run. Supported models need no code. Remove the entry if you trust the'
      ' weights.'
    )
  config = hf_config.read(path, document, family.config)
  path = os.path.join(directory, 'generation_config.json')
  if os.path.exists(path):
    config = hf_config.add_generation(config, path, read_json(path))
  return family, config


def _is_known_code(auto_map: Any, model_class: str) -> bool:
  """Returns True if `auto_map` names only copies of transformers' classes.

  Some published files do. transformers uses its own classes for them.
  """
  prefix = model_class.removesuffix('ForCausalLM')
  return not auto_map or (
    isinstance(auto_map, dict)
    and all(
      kind == 'AutoTokenizer' or str(name).split('.')[-1].startswith(prefix)
      for kind, name in auto_map.items()
    )
  )


def quantization(directory: str) -> str:
  """Returns the name of the scheme in config.json; '' for float weights.

  Args:
    directory: The checkpoint directory.

  Raises:
    errors.CheckpointError: The file cannot be read, or the scheme is refused.
  """
  path = os.path.join(directory, 'config.json')
  method = methods.read(path, read_json(path))
  return method.title if method else ''


def end_ids(directory: str) -> tuple[int, ...]:
  """Returns the ids that end an answer; () if the checkpoint names none.

  Args:
    directory: A PAX checkpoint or a Hugging Face checkpoint.

  Raises:
    errors.CheckpointError, InvalidArgument: A file is malformed.
  """
  described = description.read(directory)
  if described.stop_ids:
    return tuple(described.stop_ids)
  if described.eos_id is not None:
    return (described.eos_id,)
  if os.path.isfile(os.path.join(directory, 'config.json')):
    return read_config(directory)[1].stop_ids
  return ()
