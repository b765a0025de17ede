"""Reads a PyTorch `.bin` file (zip of torch.save) without PyTorch.

The zip's members are stored uncompressed, so tensors are views of the mapped
file. Its pickle is never run (see torch_pickle.py).
"""

from collections.abc import Mapping
import struct
import zipfile
import zlib

import ml_dtypes
import numpy as np

from converters.hf import mapped_file
from converters.hf import torch_pickle
from saxml_ext.pax import errors

# GPT-J 6B's has 40 KB. zipfile makes an object of each entry.
_MAX_DIRECTORY_BYTES = 1 << 20
# The last record of a zip, a comment of 64 KiB at most after it, and the two
# records before it that files of over 4 GiB have.
_MAX_END_BYTES = 22 + (1 << 16) + 20 + 56
_LOCAL_HEADER = struct.Struct('<4s22xHH')


class TorchFile:
  """The tensors of one file.

  Attributes:
    shapes: shape of each tensor by name.
  """

  def __init__(self, path: str):
    """Maps the file and checks its directory and its pickle.

    Raises:
      errors.CheckpointError: it is not such a file, or wants to run code.
    """
    self._path = path
    self._data = mapped_file.open_mapped(path)
    self._members = self._read_directory()
    self._checked: set[str] = set()  # keys of storages; several may share one
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
    self.shapes: Mapping[str, tuple[int, ...]] = {
      name: tensor.shape for name, tensor in self._tensors.items()
    }

  def read(self, name: str) -> np.ndarray:
    """Returns a read-only view of one tensor in the mapped file.

    Raises:
      errors.CheckpointError: its bytes do not have the checksum in the zip.
    """
    tensor = self._tensors[name]
    info = self._members[self._storage_prefix + tensor.storage.key]
    view = self._view(info, info.file_size)
    # 0 is what torch writes when told not to compute checksums.
    if info.CRC and tensor.storage.key not in self._checked:
      if zlib.crc32(view) != info.CRC:
        raise self._error(f'the bytes of tensor {name} are damaged (checksum)')
      self._checked.add(tensor.storage.key)
    dtype = _dtype(tensor.storage)
    flat = np.frombuffer(view, dtype)[tensor.offset :]
    strides = [n * dtype.itemsize for n in tensor.strides]
    return np.lib.stride_tricks.as_strided(
      flat, tensor.shape, strides, writeable=False
    )

  def advise(self, name: str, advice: int) -> None:
    """See mapped_file.advise; of all the storage that the tensor is in."""
    key = self._tensors[name].storage.key
    info = self._members[self._storage_prefix + key]
    begin, end = self._range(info, info.file_size)
    mapped_file.advise(self._data, begin, end - begin, advice)

  def _read_directory(self) -> dict[str, zipfile.ZipInfo]:
    if self._data[:2] == b'\x80\x02' or not zipfile.is_zipfile(self._path):
      raise self._error(
        'it is no zip archive (torch before 1.6 wrote others); save it '
        'again with a current torch, or as safetensors'
      )
    if (size := self._directory_bytes()) > _MAX_DIRECTORY_BYTES:
      raise self._error(
        f'its zip directory has {size} bytes; at most {_MAX_DIRECTORY_BYTES} '
        'are allowed'
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
          f'member {info.filename[:100]!r} is compressed or encrypted; '
          'torch stores its members plainly'
        )
      if info.filename in members:
        raise self._error(f'member {info.filename[:100]!r} is there twice')
      members[info.filename] = info
    return members

  def _directory_bytes(self) -> int:
    """Size that the zip claims for its directory (sections 4.3.14 and 16 of
    the format's APPNOTE)."""
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
        f'it has {len(pickles)} members named data.pkl; expected one'
      )
    return pickles[0][: -len('data.pkl')]

  def _view(self, info: zipfile.ZipInfo, limit: int) -> memoryview:
    """The bytes of a member, in place."""
    begin, end = self._range(info, limit)
    return memoryview(self._data)[begin:end]

  def _range(self, info: zipfile.ZipInfo, limit: int) -> tuple[int, int]:
    """First byte of a member, and the byte after its last."""
    begin = info.header_offset
    header = self._data[begin : begin + _LOCAL_HEADER.size]
    if len(header) < _LOCAL_HEADER.size or header[:4] != b'PK\x03\x04':
      raise self._error(f'member {info.filename[:100]!r} has no header')
    _, name_length, extra_length = _LOCAL_HEADER.unpack(header)
    begin += _LOCAL_HEADER.size + name_length + extra_length
    end = begin + info.file_size
    if info.file_size > limit or end > len(self._data):
      raise self._error(
        f'member {info.filename[:100]!r} claims {info.file_size} bytes; at '
        f'most {min(limit, max(len(self._data) - begin, 0))} are allowed'
      )
    return begin, end

  def _check_storage(self, name: str, storage: torch_pickle.StorageRef) -> None:
    info = self._members.get(self._storage_prefix + storage.key)
    expected = storage.count * _dtype(storage).itemsize
    if info is None or info.file_size != expected:
      found = 'missing' if info is None else f'{info.file_size} bytes'
      raise self._error(
        f'the numbers of tensor {name[:200]} are {found}; expected '
        f'{expected} bytes'
      )

  def _error(self, text: str) -> errors.CheckpointError:
    return errors.CheckpointError(
      f'{self._path} is not a sound PyTorch file: {text}'
    )


def _dtype(storage: torch_pickle.StorageRef) -> np.dtype:
  if storage.dtype == 'bfloat16':
    return np.dtype(ml_dtypes.bfloat16)
  return np.dtype(storage.dtype)
