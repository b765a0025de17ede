"""How a variable is cut into chunks, and into the parts it is written in."""

import math

import ml_dtypes  # Registers the names of its types, bfloat16 among them.
import numpy as np

from saxml_ext.pax import metadata

# The largest variable of GPT-J 6B has 826 MB in float32. Chunks are compressed
# and decompressed side by side, and a few are held at once, so they should be
# neither all of a variable nor many small files. A row of a combined_qkv.w of
# that size has just so much, and converting it peaked at 1.2 GiB.
MAX_CHUNK_BYTES = 1 << 26


def item_bytes(dtype: str) -> int:
  """Bytes of one number, by name of its type (NumPy's or ml_dtypes')."""
  return np.dtype(getattr(ml_dtypes, dtype, dtype)).itemsize


def num_bytes(spec: metadata.ArraySpec) -> int:
  """Bytes of all numbers of a variable."""
  return math.prod(spec.shape) * item_bytes(spec.dtype)


def chunk_shape(spec: metadata.ArraySpec) -> tuple[int, ...]:
  """Shape of the chunks: as long in the last axes as the limit allows.

  Chunks that an axis is cut into have about the same length, so that little of
  the last one lies beyond the end of the array.
  """
  shape, size = [], item_bytes(spec.dtype)
  for length in reversed(spec.shape):
    longest = max(1, MAX_CHUNK_BYTES // size)
    pieces = max(1, math.ceil(length / longest))
    shape.append(max(1, math.ceil(length / pieces)))
    size *= shape[-1]
  return tuple(reversed(shape))


def row_ranges(spec: metadata.ArraySpec) -> list[tuple[int, int]]:
  """The parts of a variable: [begin, end) along its first axis, in order.

  Each part is whole chunks, of MAX_CHUNK_BYTES at most unless one row alone
  has more. A scalar is one part, [0, 1).
  """
  if not spec.shape:
    return [(0, 1)]
  rows = chunk_shape(spec)[0]
  length = spec.shape[0]
  return [
    (begin, min(begin + rows, length)) for begin in range(0, length, rows)
  ]
