"""Reads a safetensors file through a memory map, trusting nothing in it.

Format: 8 bytes little-endian length N, N bytes of JSON that give each tensor's
dtype, shape and byte range, then the bytes.
"""

from collections.abc import Mapping
import dataclasses
import json
import math

import ml_dtypes
import numpy as np

from converters.hf import mapped_file
from saxml_ext.pax import errors

# GPT-J 6B's has 40 KB. The format allows 100 MB, whose JSON may take gigabytes.
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
}


@dataclasses.dataclass(frozen=True)
class _Entry:
  dtype: np.dtype
  shape: tuple[int, ...]
  begin: int  # offset in the file


class SafetensorsFile:
  """The tensors of one file.

  Attributes:
    shapes: shape of each tensor by name.
  """

  def __init__(self, path: str):
    """Maps the file and checks its whole header.

    Raises:
      errors.CheckpointError: it is not a safetensors file, or its header
        claims what the file does not have.
    """
    self._path = path
    self._data = mapped_file.open_mapped(path)
    self._entries = self._parse()
    self.shapes: Mapping[str, tuple[int, ...]] = {
      name: entry.shape for name, entry in self._entries.items()
    }

  def read(self, name: str) -> np.ndarray:
    """Returns a read-only view of one tensor in the mapped file."""
    entry = self._entries[name]
    return np.frombuffer(
      self._data, entry.dtype, math.prod(entry.shape), entry.begin
    ).reshape(entry.shape)

  def advise(self, name: str, advice: int) -> None:
    """See mapped_file.advise."""
    entry = self._entries[name]
    length = math.prod(entry.shape) * entry.dtype.itemsize
    mapped_file.advise(self._data, entry.begin, length, advice)

  def _parse(self) -> dict[str, _Entry]:
    size = len(self._data)
    length = int.from_bytes(self._data[:8], 'little')
    if size < 8 or length > min(size - 8, _MAX_HEADER_BYTES):
      raise self._error(
        f'its header claims {length} bytes; expected at most '
        f'{min(max(size - 8, 0), _MAX_HEADER_BYTES)} in a file of {size}'
      )
    try:
      header = json.loads(bytes(self._data[8 : 8 + length]))
    except (ValueError, RecursionError) as e:
      raise self._error(f'its header is not JSON ({e})') from e
    if not isinstance(header, dict):
      raise self._error('its header is no JSON object')
    header.pop('__metadata__', None)
    start = 8 + length
    entries = {n: self._entry(n, v, start) for n, v in header.items()}
    self._check_overlap(entries)
    return entries

  def _entry(self, name: str, value, start: int) -> _Entry:
    try:
      dtype = _DTYPES[value['dtype']]
      shape = tuple(value['shape'])
      begin, end = value['data_offsets']
      sizes = (*shape, begin, end)
      if not all(type(n) is int and n >= 0 for n in sizes):
        raise ValueError('sizes must be integers of 0 or more')
    except (KeyError, TypeError, ValueError) as e:
      text = str(value)[:200]
      raise self._error(
        f'tensor {name[:200]} is described by {text} ({e!r}); expected a '
        f'dtype of {", ".join(_DTYPES)}, a shape and data_offsets'
      ) from e
    expected = math.prod(shape) * dtype.itemsize
    if end - begin != expected or start + end > len(self._data):
      raise self._error(
        f'tensor {name[:200]} of {dtype}{list(shape)} needs {expected} bytes '
        f'but has bytes {begin} to {end} of the '
        f'{len(self._data) - start} that there are'
      )
    return _Entry(dtype, shape, start + begin)

  def _check_overlap(self, entries: Mapping[str, _Entry]) -> None:
    end, last = 0, ''
    for name, entry in sorted(entries.items(), key=lambda x: x[1].begin):
      size = math.prod(entry.shape) * entry.dtype.itemsize
      if size and entry.begin < end:
        raise self._error(f'tensors {last[:200]} and {name[:200]} overlap')
      if size:
        end, last = entry.begin + size, name

  def _error(self, text: str) -> errors.CheckpointError:
    return errors.CheckpointError(
      f'{self._path} is not a sound safetensors file: {text}; download it again'
    )
