"""Memory-mapped files of weights, and descriptions of tensors to write."""

import abc
from collections.abc import Container, Iterable, Mapping
import dataclasses
import math
import mmap
import os

import numpy as np

from converters.hf import formats
from saxml_ext.pax import errors

_NO_FLOATS = ('bool', 'uint8', 'int8', 'int16', 'int32', 'int64')


class MappedFile(abc.ABC):
  """A memory-mapped file of tensors; only the pages in use are read.

  Attributes:
    shapes: The shape of each tensor by name.
  """

  shapes: Mapping[str, tuple[int, ...]]

  def __init__(self, path: str):
    """Maps a whole regular file read-only.

    Args:
      path: The file.

    Raises:
      errors.CheckpointError: The file is missing, empty or not a regular file.
    """
    self._path = path
    if not os.path.isfile(path):
      raise errors.CheckpointError(f'{path} is missing or not a regular file.')
    with errors.reading(path), open(path, 'rb') as f:
      if not os.fstat(f.fileno()).st_size:
        raise errors.CheckpointError(f'{path} is empty. Download it again.')
      self._data = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
    formats.check_pointer(path, self._data[:64])
    self._in_use: set[str] = set()

  def read(self, name: str) -> np.ndarray:
    """Returns a read-only view of one tensor in its stored type.

    Args:
      name: The tensor.

    Raises:
      errors.CheckpointError: The tensor is damaged.
    """
    if name not in self._in_use:
      # Prefetching is requested explicitly. Transposed reads would make the
      # operating system prefetch the wrong pages.
      self._advise(*self._range_of(name), mmap.MADV_WILLNEED)
      self._in_use.add(name)
    return self._view_of(name)

  def type_of(self, name: str) -> np.dtype:
    """Returns the stored type of one tensor, which is not read."""
    return self._view_of(name).dtype

  def release(self, name: str, done: bool = True) -> None:
    """Frees the memory of one tensor; see checkpoint.Checkpoint."""
    self._advise(*self._range_of(name), mmap.MADV_DONTNEED)
    if done:
      self._in_use.discard(name)

  @abc.abstractmethod
  def _view_of(self, name: str) -> np.ndarray:
    """Returns a read-only view of one tensor."""

  @abc.abstractmethod
  def _range_of(self, name: str) -> tuple[int, int]:
    """Returns the first byte of a tensor's memory and the number of bytes."""

  def _advise(self, begin: int, length: int, advice: int) -> None:
    """Passes advice on a range of the file to the operating system.

    Args:
      begin: The first byte.
      length: The number of bytes.
      advice: mmap.MADV_WILLNEED to read the range ahead, or mmap.MADV_DONTNEED
        to release its pages from the memory of this process. The range stays
        readable.
    """
    skipped = begin % mmap.PAGESIZE
    if length:
      self._data.madvise(advice, begin - skipped, length + skipped)


def float_type(
  files: Iterable[MappedFile], skipped: Container[str] = ()
) -> str:
  """Returns the type of all float matrices; 'float32' if they have several.

  Other matrices, such as the causal masks of GPT-J's files, do not count.

  Args:
    files: The files.
    skipped: The names of matrices that do not count, either.
  """
  types = {
    file.type_of(name).name
    for file in files
    for name, shape in file.shapes.items()
    if len(shape) > 1 and name not in skipped
  }
  types.difference_update(_NO_FLOATS)
  return types.pop() if types in ({'float16'}, {'bfloat16'}) else 'float32'


@dataclasses.dataclass(frozen=True)
class TensorSpec:
  """The name, shape and type of a tensor to write."""

  name: str
  shape: tuple[int, ...]
  dtype: np.dtype

  @property
  def num_bytes(self) -> int:
    return math.prod(self.shape) * self.dtype.itemsize

  def to_bytes(self, tensor: np.ndarray) -> memoryview:
    """Returns the bytes of a tensor in C order.

    Args:
      tensor: The value.

    Raises:
      ValueError: The value has another shape or type.
    """
    if (tensor.shape, tensor.dtype) != (self.shape, self.dtype):
      raise ValueError(
        f'{self.name} is {tensor.dtype}{list(tensor.shape)}. Expected '
        f'{self.dtype}{list(self.shape)}.'
      )
    return memoryview(np.ascontiguousarray(tensor).reshape(-1).view(np.uint8))
