"""What a tensor that is to be written looks like."""

import dataclasses
import math

import numpy as np


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
    """The bytes of a value, in C order.

    Raises:
      ValueError: it is not of this shape and type.
    """
    if (tensor.shape, tensor.dtype) != (self.shape, self.dtype):
      raise ValueError(
        f'{self.name}: {tensor.dtype}{list(tensor.shape)} is '
        f'not {self.dtype}{list(self.shape)}'
      )
    return memoryview(np.ascontiguousarray(tensor).reshape(-1).view(np.uint8))
