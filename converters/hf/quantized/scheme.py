"""Describes weights that are stored as codes and scales.

The readers of all methods share this module. A quantized matrix is read as a
float32 matrix, so other code needs no knowledge of the methods.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import math
import re

import numpy as np

from saxml_ext.pax import errors

# The remedy for quantized weights that cannot be read.
DEQUANTIZE = (
  'Use the unquantized model or a GGUF file of it. If its method allows it,'
  ' transformers makes the former: load the model, and call'
  ' model.dequantize().save_pretrained(...).'
)
FLOATS = ('float16', 'bfloat16', 'float32')
# The types of indices and sizes.
INDICES = ('int32', 'int64')
# Tensors that change only the precision of activations or of the cache of keys
# and values.
IGNORED = re.compile(
  r'.*\.((in|out)put_scale(_ub)?|activation_scale|[kv]_scale)'
)
# The number of rows to dequantize at once. Temporary arrays stay small compared
# with a matrix.
_ROWS = 256


@dataclasses.dataclass(frozen=True)
class Tensors:
  """The tensors in the files of a checkpoint.

  Attributes:
    shapes: The shape of each tensor by name.
    type_of: A function from a tensor's name to its type.
    read: A function from a tensor's name to its contents.
    file_of: A function from a tensor's name to its file, for messages.
  """

  shapes: Mapping[str, tuple[int, ...]]
  type_of: Callable[[str], str]
  read: Callable[[str], np.ndarray]
  file_of: Callable[[str], str]

  def named(self, suffix: str) -> list[tuple[str, str]]:
    """Returns each name that ends in a suffix, and its part before it."""
    return [
      (name, name.removesuffix(suffix))
      for name in self.shapes
      if name.endswith(suffix)
    ]

  def check(
    self, name: str, codes: str, types: Sequence[str], *shapes: tuple[int, ...]
  ) -> tuple[int, ...]:
    """Returns the shape of a tensor that belongs to a quantized matrix.

    Args:
      name: The tensor.
      codes: The tensor with the codes of the matrix, for messages.
      types: The accepted types.
      *shapes: The accepted shapes; any if there are none.

    Raises:
      errors.CheckpointError: The tensor is missing, or of another type or
        shape.
    """
    if name not in self.shapes:
      raise errors.CheckpointError(
        f'{self.file_of(codes)}: tensor {codes} is quantized, but tensor {name}'
        f' is missing. Download the checkpoint again. {DEQUANTIZE}'
      )
    shape, type_ = self.shapes[name], self.type_of(name)
    if type_ not in types or (shapes and shape not in shapes):
      expected = ' or '.join(str(list(s)) for s in dict.fromkeys(shapes))
      raise self.error(
        name,
        f'is {type_}{list(shape)}. Expected {" or ".join(types)}'
        + (f' of shape {expected}' if shapes else ''),
      )
    return shape

  def error(self, name: str, text: str) -> errors.CheckpointError:
    """Returns the error of a tensor that cannot be dequantized."""
    return errors.CheckpointError(
      f'{self.file_of(name)}: tensor {name} {text}. Download the checkpoint'
      f' again. {DEQUANTIZE}'
    )


@dataclasses.dataclass(frozen=True)
class Weight:
  """A quantized matrix.

  Attributes:
    shape: The shape of the matrix, [outputs, inputs].
    tensors: The stored tensors that it is made of.
    read: A function that returns the matrix in float32.
    read_scales: A function that returns the scales of all rows, [outputs]
      float32, if the matrix has symmetric int8 codes with one scale per row.
      None for other matrices.
  """

  shape: tuple[int, ...]
  tensors: tuple[str, ...]
  read: Callable[[], np.ndarray]
  read_scales: Callable[[], np.ndarray] | None = None


@dataclasses.dataclass(frozen=True)
class Scheme:
  """A way to store quantized weights, as config.json describes it.

  Attributes:
    title: The name in messages.
    find: A function that checks and returns all quantized matrices by name.
  """

  title: str
  find: Callable[[Tensors], dict[str, Weight]]


def scale_shapes(
  shape: tuple[int, ...], block: tuple[int, int]
) -> list[tuple[int, ...]]:
  """Returns the shapes that scales of a matrix may have, the full form first.

  Args:
    shape: The shape of the matrix.
    block: The numbers of rows and columns that share a scale.
  """
  grid = tuple(
    -(-size // max(n, 1)) for size, n in zip(shape, block, strict=True)
  )
  shapes: list[tuple[int, ...]] = [grid]
  if grid[1] == 1:
    shapes.append(grid[:1])
  return [*shapes, ()] if grid == (1, 1) else shapes


def dequantize(
  codes: np.ndarray,
  scales: np.ndarray,
  block: tuple[int, int],
  zeros: np.ndarray | None = None,
  groups: np.ndarray | None = None,
) -> np.ndarray:
  """Returns (codes - zeros) * scales in float32.

  Args:
    codes: The codes, [outputs, inputs], integers or FP8.
    scales: The scale of each block.
    block: The numbers of rows and columns of a block.
    zeros: The codes of zero, in the shape of the scales; None for 0.
    groups: The block of each column, [inputs]; None if columns are in order.
  """
  if groups is None:
    groups = np.arange(codes.shape[1]) // block[1]
  grid = scale_shapes(codes.shape, block)[0]
  scales = scales.astype(np.float32).reshape(grid)
  if zeros is not None:
    zeros = zeros.astype(np.float32).reshape(grid)
  values = np.empty(codes.shape, np.float32)
  for begin in range(0, len(values), _ROWS):
    part = values[begin : begin + _ROWS]
    part[...] = codes[begin : begin + _ROWS]
    rows = np.arange(begin, begin + len(part)) // block[0]
    # Scales that are not finite are reported later, with their matrix.
    with np.errstate(invalid='ignore', over='ignore'):
      if zeros is not None:
        part -= zeros[rows][:, groups]
      part *= scales[rows][:, groups]
  return values


def unpack(packed: np.ndarray, bits: int) -> np.ndarray:
  """Returns the codes of 32-bit words, [rows, codes] uint8.

  Args:
    packed: The words, [rows, words]. The lowest bits are the first code.
    bits: The number of bits of a code, 2, 4 or 8.
  """
  data = np.ascontiguousarray(packed).view(np.uint8)
  if bits == 8:
    return data
  codes = np.empty((*data.shape, 8 // bits), np.uint8)
  for i in range(8 // bits):
    codes[..., i] = data >> (bits * i) & ((1 << bits) - 1)
  return codes.reshape(len(data), -1)


def num_words(count: int, bits: int) -> int:
  """Returns the number of 32-bit words of some codes."""
  return math.ceil(count * bits / 32)


def read_groups(tensors: Tensors, name: str, count: int) -> np.ndarray | None:
  """Returns the group of each input, or None if groups are in order.

  Args:
    tensors: The tensors of the checkpoint.
    name: The tensor with the groups, which may be missing.
    count: The number of groups.

  Raises:
    errors.CheckpointError: There is no such group.
  """
  if name not in tensors.shapes:
    return None
  groups = tensors.read(name)
  if not 0 <= groups.min() <= groups.max() < count:
    raise tensors.error(
      name,
      f'has groups from {groups.min()} to {groups.max()}. Expected 0 to'
      f' {count - 1}',
    )
  return groups
