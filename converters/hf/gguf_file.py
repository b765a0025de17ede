"""Reads GGUF files of llama.cpp without trusting their contents.

The format is a header with counts, the metadata as pairs of keys and typed
values, the descriptions of the tensors, and their data. Numbers are
little-endian, and the dimensions of a tensor begin with the fastest one.
"""

from collections.abc import Mapping
import importlib
import math
import struct
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from converters.hf import weights_file
from saxml_ext.pax import errors

MAGIC = b'GGUF'
_VERSIONS = (2, 3)
# The types of numbers in the metadata, as format characters of `struct`.
_SCALARS = dict(enumerate('BbHhIif?')) | {10: 'Q', 11: 'q', 12: 'd'}
_UINT32, _UINT64 = 'I', 'Q'
_STRING, _ARRAY = 8, 9
_LENGTH = struct.Struct('<Q')
# The least number of bytes of a pair of the metadata and of a description.
_LEAST_PAIR, _LEAST_TENSOR = 13, 24
_MAX_DIMS = 4
_ALIGNMENT = 'general.alignment'
# The number of blocks that are dequantized at once, which fit in a cache.
_BLOCKS = 1024


class _Type(NamedTuple):
  """A type of tensors: `values` numbers are stored as one item of `dtype`."""

  name: str
  values: int
  dtype: np.dtype


def _blocks(name: str, values: int, num_bytes: int) -> _Type:
  return _Type(name, values, np.dtype(('u1', (num_bytes,))))


_TYPES = {
  0: _Type('F32', 1, np.dtype('<f4')),
  1: _Type('F16', 1, np.dtype('<f2')),
  2: _blocks('Q4_0', 32, 18),
  3: _blocks('Q4_1', 32, 20),
  6: _blocks('Q5_0', 32, 22),
  7: _blocks('Q5_1', 32, 24),
  8: _blocks('Q8_0', 32, 34),
  12: _blocks('Q4_K', 256, 144),
  13: _blocks('Q5_K', 256, 176),
  14: _blocks('Q6_K', 256, 210),
  30: _Type('BF16', 1, np.dtype(ml_dtypes.bfloat16)),
}


class _Tensor(NamedTuple):
  """The description of a tensor; `begin` counts from the start of the file."""

  type: _Type
  shape: tuple[int, ...]
  begin: int

  @property
  def num_bytes(self) -> int:
    return math.prod(self.shape) // self.type.values * self.type.dtype.itemsize


class GGUFFile(weights_file.MappedFile):
  """The metadata and the tensors of one file.

  Attributes:
    metadata: The values by key. Arrays are lists.
    shapes: The shape of each tensor by name; the last axis is contiguous.
  """

  metadata: Mapping[str, Any]

  def __init__(self, path: str):
    """Maps the file and checks its metadata and descriptions.

    Args:
      path: The file.

    Raises:
      errors.CheckpointError: The file is not a GGUF file of a supported
        version, is only a part of a model, has a tensor of another type than
        those in `_TYPES`, or describes data that it does not contain.
    """
    super().__init__(path)
    self._position = 0
    num_tensors, num_pairs = self._header()
    self.metadata = self._pairs(num_pairs)
    if self.metadata.get('split.count', 1) not in (0, 1):
      raise errors.CheckpointError(
        f'{path} is one of {self.metadata["split.count"]} parts of a model.'
        ' Join them with "llama-gguf-split --merge" of llama.cpp.'
      )
    self._tensors = self._descriptions(num_tensors)
    self.shapes = {name: t.shape for name, t in self._tensors.items()}

  @property
  def quantization(self) -> str:
    """The types of the quantized tensors, such as "Q4_1 and Q6_K"."""
    types = {t.type.name for t in self._tensors.values() if t.type.values > 1}
    return ' and '.join(sorted(types))

  def read(self, name: str, region: tuple[slice, ...] = ()) -> np.ndarray:
    """Returns a region of a tensor; that of a quantized one is float32.

    Args:
      name: The tensor.
      region: The range of each dimension; () means the whole tensor.
    """
    stored, type_ = super().read(name), self._tensors[name].type
    if type_.values == 1:
      return stored[region]
    region = region or tuple(slice(0, size) for size in self.shapes[name])
    begin, end = region[-1].start, region[-1].stop
    first = begin // type_.values
    blocks = stored[(*region[:-1], slice(first, -(-end // type_.values)))]
    values = _dequantized(type_, blocks.reshape(-1, type_.dtype.itemsize))
    values = values.reshape(*blocks.shape[:-2], -1)
    skipped = first * type_.values
    return values[..., begin - skipped : end - skipped]

  def _view_of(self, name: str) -> np.ndarray:
    type_, shape, begin = self._tensors[name]
    items = np.frombuffer(
      self._data, type_.dtype, math.prod(shape) // type_.values, begin
    )
    blocks = shape[:-1] + (shape[-1] // type_.values,) if shape else ()
    return items.reshape(*blocks, *type_.dtype.shape)

  def _range_of(self, name: str) -> tuple[int, int]:
    return self._tensors[name].begin, self._tensors[name].num_bytes

  def _header(self) -> tuple[int, int]:
    """Returns the numbers of tensors and of pairs of the metadata."""
    magic = self._take(len(MAGIC))
    if magic != MAGIC:
      raise errors.CheckpointError(
        f'{self._path} is not a GGUF file: it begins with {magic!r}, not with'
        f' {MAGIC!r}. Pass a .gguf file, or the directory of a model.'
      )
    version = self._number(_UINT32)
    if version not in _VERSIONS:
      swapped = int.from_bytes(version.to_bytes(4, 'little'), 'big')
      raise errors.CheckpointError(
        f'{self._path} is a big-endian GGUF file. Convert it with'
        ' "gguf-convert-endian FILE little" of the PyPI package gguf.'
        if swapped in _VERSIONS
        else f'{self._path} has version {version} of GGUF. Supported versions:'
        f' {", ".join(map(str, _VERSIONS))}. Convert the model to GGUF again'
        ' with a current llama.cpp.'
      )
    counts = (self._number(_UINT64), self._number(_UINT64))
    needed = counts[0] * _LEAST_TENSOR + counts[1] * _LEAST_PAIR
    self._check_room(needed, f'{counts[0]} tensors and {counts[1]} keys')
    return counts

  def _pairs(self, count: int) -> dict[str, Any]:
    pairs: dict[str, Any] = {}
    for _ in range(count):
      key = self._text()
      if key in pairs:
        raise self._error(f'its metadata has the key {key[:200]!r} twice')
      pairs[key] = self._value(key, self._number(_UINT32))
    return pairs

  def _value(self, key: str, kind: int) -> Any:
    if kind == _STRING:
      return self._text()
    if kind in _SCALARS:
      return self._number(_SCALARS[kind])
    if kind == _ARRAY:
      item, length = self._number(_UINT32), self._number(_UINT64)
      if item == _STRING:
        self._check_room(8 * length, f'{length} strings as {key[:200]!r}')
        return self._texts(length)
      if item in _SCALARS:
        dtype = np.dtype(f'<{_SCALARS[item]}')
        data = self._take(length * dtype.itemsize)
        return np.frombuffer(data, dtype).tolist()
      kind = item
    raise self._error(f'the value of {key[:200]!r} has the unknown type {kind}')

  def _descriptions(self, count: int) -> dict[str, _Tensor]:
    tensors: dict[str, _Tensor] = {}
    for _ in range(count):
      name = self._text()
      if name in tensors:
        raise self._error(f'it has tensor {name[:200]} twice')
      dims = self._number(_UINT32)
      if dims > _MAX_DIMS:
        raise self._error(
          f'tensor {name[:200]} has {dims} dimensions, above the limit of'
          f' {_MAX_DIMS}'
        )
      shape = tuple(self._number(_UINT64) for _ in range(dims))[::-1]
      type_ = self._type(name, self._number(_UINT32))
      if shape and shape[-1] % type_.values:
        raise self._error(
          f'tensor {name[:200]} of {type_.name}{list(shape)} has rows that are'
          f' not a multiple of {type_.values} values'
        )
      tensors[name] = _Tensor(type_, shape, self._number(_UINT64))
    return self._located(tensors)

  def _located(self, tensors: Mapping[str, _Tensor]) -> dict[str, _Tensor]:
    """Returns the tensors with offsets that count from the start of the file.

    The descriptions have the offsets from the end of the header.
    """
    alignment = self.metadata.get(_ALIGNMENT, 32)
    if type(alignment) is not int or alignment not in [
      1 << i for i in range(32)
    ]:
      raise self._error(
        f'{_ALIGNMENT} is {alignment}, but must be a power of two'
      )
    start = -(-self._position // alignment) * alignment
    end, last = start, ''
    for name, tensor in sorted(tensors.items(), key=lambda item: item[1].begin):
      begin = start + tensor.begin
      described = f'tensor {name[:200]} of {tensor.type.name}'
      described += f'{list(tensor.shape)}'
      if begin + tensor.num_bytes > len(self._data) or tensor.begin % alignment:
        raise self._error(
          f'{described} needs {tensor.num_bytes} bytes at {begin}, in a file of'
          f' {len(self._data)} bytes with an alignment of {alignment}'
        )
      if begin < end:
        raise self._error(f'{described} overlaps tensor {last[:200]}')
      end, last = begin + tensor.num_bytes, name
    return {n: t._replace(begin=start + t.begin) for n, t in tensors.items()}

  def _type(self, name: str, number: int) -> _Type:
    if number not in _TYPES:
      names = importlib.import_module('gguf.constants').GGMLQuantizationType
      known = number in names._value2member_map_
      raise errors.CheckpointError(
        f'{self._path}: tensor {name[:200]} has the type'
        f' {names(number).name if known else number}, which is not supported.'
        f' Supported types: {", ".join(t.name for t in _TYPES.values())}. Use'
        ' another file of the model.'
      )
    return _TYPES[number]

  def _text(self) -> str:
    data = self._take(self._number(_UINT64))
    try:
      return data.decode()
    except UnicodeDecodeError as e:
      raise self._error(f'its text {data[:100]!r} is not UTF-8') from e

  def _texts(self, count: int) -> list[str]:
    """Returns texts as `_text` does, which is too slow for a vocabulary."""
    texts, data, end = [], self._data, len(self._data)
    for _ in range(count):
      begin = self._position + _LENGTH.size
      size = 0
      if begin <= end:
        (size,) = _LENGTH.unpack_from(data, self._position)
      try:
        if begin + size > end:
          raise ValueError
        texts.append(data[begin : begin + size].decode())
        self._position = begin + size
      except ValueError:
        texts.append(self._text())  # This call raises the error.
    return texts

  def _number(self, code: str) -> Any:
    data = self._take(struct.calcsize(f'<{code}'))
    return struct.unpack(f'<{code}', data)[0]

  def _take(self, length: int) -> bytes:
    self._check_room(length, f'{length} bytes')
    begin = self._position
    self._position += length
    return self._data[begin : self._position]

  def _check_room(self, length: int, what: str) -> None:
    room = len(self._data) - self._position
    if length > room:
      raise self._error(
        f'it ends too early: {what} should follow at byte {self._position}, but'
        f' only {room} bytes do'
      )

  def _error(self, text: str) -> errors.CheckpointError:
    return errors.CheckpointError(
      f'{self._path} is not a valid GGUF file: {text}. Download it again.'
    )


def _dequantized(type_: _Type, blocks: np.ndarray) -> np.ndarray:
  """Returns the values of blocks [N, bytes], [N, type_.values] float32."""
  # The import is slow, and only quantized files need it.
  gguf = importlib.import_module('gguf')
  kind = gguf.GGMLQuantizationType[type_.name]
  values = np.empty((len(blocks), type_.values), np.float32)
  for i in range(0, len(blocks), _BLOCKS):
    part = np.ascontiguousarray(blocks[i : i + _BLOCKS])
    values[i : i + _BLOCKS] = gguf.dequantize(
      part.reshape(1, -1), kind
    ).reshape(-1, type_.values)
  return values
