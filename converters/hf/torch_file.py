"""Reads and writes PyTorch's `.bin` files without PyTorch.

torch.save writes a dict of tensors as a zip of uncompressed members. One member
is a pickle of protocol 2 that describes the tensors. Each other member contains
the bytes of one storage. So tensors are views of the mapped file. The pickle is
never run (see torch_pickle.py).
"""

from collections.abc import Iterable, Sequence
import math
import mmap
import struct
import zipfile
import zlib

import ml_dtypes  # noqa: F401 Registers the type name bfloat16 in NumPy.
import numpy as np

from converters.hf import torch_pickle
from converters.hf import weights_file
from saxml_ext.pax import errors

# The zip directory of GPT-J 6B has 40 KB. zipfile makes an object of each
# entry.
_MAX_DIRECTORY_BYTES = 1 << 20
# A zip ends with a record and a comment of at most 64 KiB. In files larger than
# 4 GiB, two more records precede them.
_MAX_END_BYTES = 22 + (1 << 16) + 20 + 56
_STORAGE_CLASSES = {v: k for k, v in torch_pickle.STORAGES.items()}
# The number of bytes whose checksum is computed at once.
_CHECKED_BYTES = 1 << 26
_LOCAL_HEADER = struct.Struct('<4s22xHH')


class TorchFile(weights_file.MappedFile):
  """The tensors of one file."""

  def __init__(self, path: str):
    """Maps the file and checks its zip directory and its pickle.

    Args:
      path: The file.

    Raises:
      errors.CheckpointError: The file has another format, or tries to run code.
    """
    super().__init__(path)
    self._members = self._read_directory()
    self._checked: set[str] = set()  # Keys of storages.
    prefix = self._prefix()
    if f'{prefix}constants.pkl' in self._members:
      raise self._error('it is a TorchScript program, not a state dict')
    self._storage_prefix = f'{prefix}data/'
    order = self._members.get(f'{prefix}byteorder')
    if order and bytes(self._view(order, 16)) != b'little':
      raise self._error('its numbers are not little-endian')
    pickle_info = self._members[f'{prefix}data.pkl']
    pickle = bytes(self._view(pickle_info, torch_pickle.MAX_PICKLE_BYTES))
    self._tensors = torch_pickle.read_tensors(pickle, path)
    for name, tensor in self._tensors.items():
      self._check_storage(name, tensor.storage)
    self.shapes = {name: tensor.shape for name, tensor in self._tensors.items()}

  def _view_of(self, name: str) -> np.ndarray:
    """Returns a view of one tensor after comparing its bytes and checksum."""
    tensor = self._tensors[name]
    info = self._members[self._storage_prefix + tensor.storage.key]
    view = self._view(info, info.file_size)
    # torch writes 0 if checksums are turned off.
    if info.CRC and tensor.storage.key not in self._checked:
      if self._checksum(info) != info.CRC:
        raise self._error(f'tensor {name} does not match its checksum')
      self._checked.add(tensor.storage.key)
    dtype = np.dtype(tensor.storage.dtype)
    flat = np.frombuffer(view, dtype)[tensor.offset :]
    strides = [n * dtype.itemsize for n in tensor.strides]
    return np.lib.stride_tricks.as_strided(
      flat, tensor.shape, strides, writeable=False
    )

  def _checksum(self, info: zipfile.ZipInfo) -> int:
    """Returns the CRC of a member, with few of its pages in memory."""
    begin, end = self._range(info, info.file_size)
    crc = 0
    for offset in range(begin, end, _CHECKED_BYTES):
      size = min(_CHECKED_BYTES, end - offset)
      with memoryview(self._data) as data:
        crc = zlib.crc32(data[offset : offset + size], crc)
      self._advise(offset, size, mmap.MADV_DONTNEED)
    return crc

  def _range_of(self, name: str) -> tuple[int, int]:
    key = self._tensors[name].storage.key
    info = self._members[self._storage_prefix + key]
    begin, end = self._range(info, info.file_size)
    return begin, end - begin

  def _read_directory(self) -> dict[str, zipfile.ZipInfo]:
    if self._data[:2] == b'\x80\x02' or not zipfile.is_zipfile(self._path):
      raise self._error(
        'it is not a zip archive (torch before 1.6 used another format). Save'
        ' it again with a current torch, or as safetensors'
      )
    if (size := self._directory_bytes()) > _MAX_DIRECTORY_BYTES:
      raise self._error(
        f'its zip directory has {size} bytes. The limit is'
        f' {_MAX_DIRECTORY_BYTES}'
      )
    try:
      with zipfile.ZipFile(self._path) as archive:
        infos = archive.infolist()
    except (
      zipfile.BadZipFile,
      OSError,
      ValueError,
      struct.error,
      NotImplementedError,
    ) as e:
      raise self._error(f'its zip directory is damaged ({e})') from e
    members = {}
    for info in infos:
      if (
        info.compress_type != zipfile.ZIP_STORED
        or info.compress_size != info.file_size
        or info.flag_bits & 1
      ):
        raise self._error(
          f'member {info.filename[:100]!r} is compressed or encrypted. torch'
          ' does neither'
        )
      if info.filename in members:
        raise self._error(f'member {info.filename[:100]!r} exists twice')
      members[info.filename] = info
    return members

  def _directory_bytes(self) -> int:
    """Returns the size that the zip states for its directory.

    See sections 4.3.14 and 16 of APPNOTE, the specification of the format.
    """
    end = self._data[max(0, len(self._data) - _MAX_END_BYTES) :]
    (size,) = struct.unpack_from('<I', end, end.rindex(b'PK\x05\x06') + 12)
    long_end = end.rfind(b'PK\x06\x06')
    if size == 0xFFFFFFFF and long_end >= 0:
      (size,) = struct.unpack_from('<Q', end, long_end + 40)
    return size

  def _prefix(self) -> str:
    pickles = [
      n for n in self._members if n == 'data.pkl' or n.endswith('/data.pkl')
    ]
    if len(pickles) != 1:
      raise self._error(
        f'it has {len(pickles)} members named data.pkl, but expected one'
      )
    return pickles[0][: -len('data.pkl')]

  def _view(self, info: zipfile.ZipInfo, limit: int) -> memoryview:
    """Returns the bytes of a member as a view of the mapped file."""
    begin, end = self._range(info, limit)
    return memoryview(self._data)[begin:end]

  def _range(self, info: zipfile.ZipInfo, limit: int) -> tuple[int, int]:
    """Returns the offsets of the first byte of a member and of its end."""
    begin = info.header_offset
    header = self._data[begin : begin + _LOCAL_HEADER.size]
    if len(header) < _LOCAL_HEADER.size or header[:4] != b'PK\x03\x04':
      raise self._error(f'member {info.filename[:100]!r} has no header')
    _, name_length, extra_length = _LOCAL_HEADER.unpack(header)
    begin += _LOCAL_HEADER.size + name_length + extra_length
    end = begin + info.file_size
    if info.file_size > limit or end > len(self._data):
      raise self._error(
        f'member {info.filename[:100]!r} claims {info.file_size} bytes. The '
        f'limit is {min(limit, max(len(self._data) - begin, 0))}'
      )
    return begin, end

  def _check_storage(self, name: str, storage: torch_pickle.StorageRef) -> None:
    info = self._members.get(self._storage_prefix + storage.key)
    expected = storage.count * np.dtype(storage.dtype).itemsize
    if info is None or info.file_size != expected:
      size = 'none' if info is None else info.file_size
      raise self._error(
        f'expected {expected} bytes for tensor {name[:200]}, found {size}'
      )

  def _error(self, text: str) -> errors.CheckpointError:
    return errors.CheckpointError(
      f'{self._path} is not a valid PyTorch file: {text}.'
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
  with zipfile.ZipFile(path, 'w', zipfile.ZIP_STORED) as archive:
    _add(archive, 'data.pkl', _pickle(specs))
    _add(archive, 'byteorder', b'little')
    for key, (spec, tensor) in enumerate(zip(specs, tensors, strict=True)):
      _add(archive, f'data/{key}', spec.to_bytes(tensor))
    _add(archive, 'version', b'3\n')


def _add(archive: zipfile.ZipFile, name: str, data) -> None:
  info = zipfile.ZipInfo(f'archive/{name}')  # The date is always in 1980.
  with archive.open(info, 'w', force_zip64=True) as member:
    member.write(data)


def _pickle(specs: Sequence[weights_file.TensorSpec]) -> bytes:
  """Returns a pickled dict, in which each value calls a rebuild function."""
  out = [b'\x80\x02}(']
  for key, spec in enumerate(specs):
    out += [
      _text(spec.name),
      b'ctorch._utils\n_rebuild_tensor_v2\n(',
      # The "persistent id" of the storage: kind, class, key, device and element
      # count.
      b'(',
      _text('storage'),
      b'ctorch\n%s\n' % _STORAGE_CLASSES[spec.dtype.name].encode('ascii'),
      _text(str(key)),
      _text('cpu'),
      _integer(math.prod(spec.shape)),
      b'tQ',
      _integer(0),
      _sizes(spec.shape),
      _sizes(_strides(spec.shape)),
      b'\x89ccollections\nOrderedDict\n)RtR',  # no gradient, no hooks
    ]
  out.append(b'u.')
  return b''.join(out)


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
  return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def _sizes(values: Sequence[int]) -> bytes:
  return b'(' + b''.join(map(_integer, values)) + b't'


def _integer(value: int) -> bytes:
  if value < 1 << 31:
    return struct.pack('<ci', b'J', value)
  return struct.pack('<cBq', b'\x8a', 8, value)


def _text(value: str) -> bytes:
  data = value.encode('utf-8')
  return struct.pack('<cI', b'X', len(data)) + data
