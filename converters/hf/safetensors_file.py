"""Reads safetensors files without trusting their contents, and writes them.

The format is an 8-byte little-endian length N, then N bytes of JSON, then the
data. The JSON contains the dtype, the shape and the byte range of each tensor.
"""

from collections.abc import Iterable, Mapping, Sequence
import json
import math
import re
from typing import Annotated

import ml_dtypes
import msgspec
import numpy as np

from converters.hf import weights_file
from converters.hf.quantized import scheme
from saxml_ext.pax import errors
from saxml_ext.pax import metadata

# The header of GPT-J 6B has 40 KB. The format allows headers of 100 MB, but
# parsing such JSON may need gigabytes.
_MAX_HEADER_BYTES = 1 << 20

_DTYPES = {
  'F64': np.dtype('<f8'),
  'F32': np.dtype('<f4'),
  'F16': np.dtype('<f2'),
  'BF16': np.dtype(ml_dtypes.bfloat16),
  'I64': np.dtype('<i8'),
  'I32': np.dtype('<i4'),
  'I16': np.dtype('<i2'),
  'I8': np.dtype('i1'),
  'U8': np.dtype('u1'),
  'BOOL': np.dtype('?'),
  'F8_E4M3': np.dtype(ml_dtypes.float8_e4m3fn),
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
# Types of fewer than 16 bits, such as F8_E5M2 and F4.
_QUANTIZED = re.compile(r'F[468](_E\dM\d\w{0,4})?')
_Offset = Annotated[int, msgspec.Meta(ge=0)]


class _Entry(msgspec.Struct):
  """A header entry of one tensor; offsets count from the end of the header."""

  dtype: str
  shape: metadata.Shape
  data_offsets: tuple[_Offset, _Offset]

  def __post_init__(self) -> None:
    if self.dtype not in _DTYPES:
      raise ValueError(f'dtype {self.dtype!r} is unknown')

  @property
  def num_bytes(self) -> int:
    return math.prod(self.shape) * _DTYPES[self.dtype].itemsize


class SafetensorsFile(weights_file.MappedFile):
  """The tensors of one file."""

  def __init__(self, path: str):
    """Maps the file and checks its whole header.

    Args:
      path: The file.

    Raises:
      errors.CheckpointError: The file is not a safetensors file, or its header
        describes data that the file does not contain.
    """
    super().__init__(path)
    self._start = 0
    self._entries = self._parse()
    self.shapes = {name: entry.shape for name, entry in self._entries.items()}

  def _view_of(self, name: str) -> np.ndarray:
    begin, _ = self._range_of(name)
    entry = self._entries[name]
    dtype, count = _DTYPES[entry.dtype], math.prod(entry.shape)
    return np.frombuffer(self._data, dtype, count, begin).reshape(entry.shape)

  def _range_of(self, name: str) -> tuple[int, int]:
    entry = self._entries[name]
    return self._start + entry.data_offsets[0], entry.num_bytes

  def _parse(self) -> dict[str, _Entry]:
    size = len(self._data)
    length = int.from_bytes(self._data[:8], 'little')
    if size < 8 or length > min(size - 8, _MAX_HEADER_BYTES):
      raise self._error(
        f'its header claims {length} bytes, but in a file of {size} bytes the '
        f'limit is {min(max(size - 8, 0), _MAX_HEADER_BYTES)}'
      )
    try:
      header = msgspec.json.decode(self._data[8 : 8 + length])
    except (ValueError, RecursionError) as e:
      raise self._error(f'its header is not JSON ({e})') from e
    if not isinstance(header, dict):
      raise self._error('its header is not a JSON object')
    header.pop('__metadata__', None)
    self._start = 8 + length
    entries = {name: self._entry(name, v) for name, v in header.items()}
    self._check_overlap(entries)
    return entries

  def _entry(self, name: str, value: object) -> _Entry:
    dtype = value.get('dtype') if isinstance(value, dict) else None
    if (
      isinstance(dtype, str)
      and dtype not in _DTYPES
      and _QUANTIZED.fullmatch(dtype)
    ):
      raise errors.CheckpointError(
        f'{self._path}: tensor {name[:200]} has the type {dtype} of quantized'
        f' weights. {scheme.DEQUANTIZE}'
      )
    try:
      entry = msgspec.convert(value, _Entry)
    except msgspec.ValidationError as e:
      text = str(value)[:200]
      raise self._error(
        f'tensor {name[:200]} is described by {text} ({e}). Expected a '
        f'dtype of {", ".join(_DTYPES)}, a shape and data_offsets'
      ) from e
    begin, end = entry.data_offsets
    room = len(self._data) - self._start
    if end - begin != entry.num_bytes or end > room:
      raise self._error(
        f'tensor {name[:200]} of {_DTYPES[entry.dtype]}{list(entry.shape)}'
        f' needs {entry.num_bytes} bytes, but has bytes {begin} to {end} of'
        f' {room}'
      )
    return entry

  def _check_overlap(self, entries: Mapping[str, _Entry]) -> None:
    end, last = 0, ''
    for name, entry in sorted(
      entries.items(), key=lambda item: item[1].data_offsets
    ):
      if entry.num_bytes and entry.data_offsets[0] < end:
        raise self._error(f'tensors {last[:200]} and {name[:200]} overlap')
      if entry.num_bytes:
        end, last = entry.data_offsets[1], name

  def _error(self, text: str) -> errors.CheckpointError:
    return errors.CheckpointError(
      f'{self._path} is not a valid safetensors file: {text}. Download it'
      ' again.'
    )


def write(
  path: str,
  specs: Sequence[weights_file.TensorSpec],
  tensors: Iterable[np.ndarray],
) -> None:
  """Writes a file as a stream; equal tensors give equal bytes.

  Args:
    path: The file to write.
    specs: The names, shapes and types of all tensors.
    tensors: The values in the same order, consumed one at a time.
  """
  header: dict[str, dict[str, object]] = {'__metadata__': {'format': 'pt'}}
  end = 0
  for spec in specs:
    begin, end = end, end + spec.num_bytes
    header[spec.name] = {
      'dtype': _NAMES[spec.dtype],
      'shape': list(spec.shape),
      'data_offsets': [begin, end],
    }
  text = json.dumps(header, separators=(',', ':')).encode('ascii')
  text += b' ' * (-len(text) % 8)  # Readers require aligned tensors.
  with open(path, 'wb') as f:
    f.write(len(text).to_bytes(8, 'little') + text)
    for spec, tensor in zip(specs, tensors, strict=True):
      f.write(spec.to_bytes(tensor))
