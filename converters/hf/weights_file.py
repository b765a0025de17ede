"""Files of weights: read through a memory map, and the tensors written to one."""

import dataclasses
import math
import mmap
import os

import numpy as np

from saxml_ext.pax import errors


class MappedFile:
  """A memory-mapped file, of which only what is used is read."""

  def __init__(self, path: str):
    """Maps a whole regular file read-only.

    Raises:
      errors.CheckpointError: It is missing, empty, or no regular file.
    """
    self._path = path
    if not os.path.isfile(path):
      raise errors.CheckpointError(f'{path} is missing or not a regular file')
    with errors.reading(path), open(path, 'rb') as f:
      if not os.fstat(f.fileno()).st_size:
        raise errors.CheckpointError(f'{path} is empty; download it again')
      self._data = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)

  def _advise(self, begin: int, length: int, advice: int) -> None:
    """Advises the system on a range of the file.

    Args:
      begin: The first byte.
      length: The number of bytes.
      advice: mmap.MADV_WILLNEED to have it read ahead, mmap.MADV_DONTNEED to
        have its pages counted as memory of this process no longer. It stays
        readable.
    """
    skipped = begin % mmap.PAGESIZE
    if length:
      self._data.madvise(advice, begin - skipped, length + skipped)


@dataclasses.dataclass(frozen=True)
class TensorSpec:
  """Name, shape and type of a tensor that is to be written."""

  name: str
  shape: tuple[int, ...]
  dtype: np.dtype

  @property
  def num_bytes(self) -> int:
    return math.prod(self.shape) * self.dtype.itemsize

  def to_bytes(self, tensor: np.ndarray) -> memoryview:
    """Returns the bytes of a value, in C order.

    Raises:
      ValueError: It is not of this shape and type.
    """
    if (tensor.shape, tensor.dtype) != (self.shape, self.dtype):
      raise ValueError(
        f'{self.name}: {tensor.dtype}{list(tensor.shape)} is '
        f'not {self.dtype}{list(self.shape)}'
      )
    return memoryview(np.ascontiguousarray(tensor).reshape(-1).view(np.uint8))
