"""Shapes and types of variables, and the JSON in which paxml keeps them.

`metadata/metadata` names the version of the format and, for every variable of
the model, its shape and type as a tree that follows the dots of its name:

  {"version": 1.1, "train_state_metadata": {"mdl_vars": {"params": {"lm": ...
     {"_array_metadata_tag": true, "is_optax_masked_node": false,
      "unpadded_shape": [4096], "dtype": "float32"}}}}}

1.1 is one zarr directory per variable; 1.2 is the same kept in OCDBT.
"""

from collections.abc import Mapping
import dataclasses
import json
import math
from typing import Annotated, Any

import ml_dtypes  # Registers the names of its types, bfloat16 among them.
import msgspec
import numpy as np

from saxml_ext.pax import errors

VERSION = 1.1
_READABLE_VERSIONS = (1.0, 1.1, 1.2)
_TAG = '_array_metadata_tag'
_TREE = 'train_state_metadata'

# The largest variable of GPT-J 6B has 826 MB in float32. Chunks are compressed
# and decompressed side by side, and a few are held at once, so they should be
# neither all of a variable nor many small files. A row of a combined_qkv.w of
# that size has just so much, and converting it peaked at 1.2 GiB.
MAX_CHUNK_BYTES = 1 << 26

# The dims of a variable, as JSON has them.
Shape = tuple[Annotated[int, msgspec.Meta(ge=0)], ...]


@dataclasses.dataclass(frozen=True)
class ArraySpec:
  """Shape and NumPy (or ml_dtypes) type name of one variable."""

  shape: tuple[int, ...]
  dtype: str

  def __str__(self) -> str:
    return f'{self.dtype}{list(self.shape)}'

  @classmethod
  def of(cls, value: np.ndarray) -> 'ArraySpec':
    """Returns the shape and the type of an array."""
    return cls(value.shape, value.dtype.name)

  @property
  def _item_bytes(self) -> int:
    return np.dtype(getattr(ml_dtypes, self.dtype, self.dtype)).itemsize

  @property
  def num_bytes(self) -> int:
    """The bytes of all numbers."""
    return math.prod(self.shape) * self._item_bytes

  @property
  def chunk_shape(self) -> tuple[int, ...]:
    """The shape of the chunks: as long in the last axes as the limit allows.

    Chunks that an axis is cut into have about the same length, so that little
    of the last one lies beyond the end of the array.
    """
    shape, size = [], self._item_bytes
    for length in reversed(self.shape):
      longest = max(1, MAX_CHUNK_BYTES // size)
      pieces = max(1, math.ceil(length / longest))
      shape.append(max(1, math.ceil(length / pieces)))
      size *= shape[-1]
    return tuple(reversed(shape))

  @property
  def row_ranges(self) -> list[tuple[int, int]]:
    """The parts that are written at once: [begin, end) along the first axis.

    Each part is whole chunks, of MAX_CHUNK_BYTES at most unless one row alone
    has more. A scalar is one part, [0, 1).
    """
    if not self.shape:
      return [(0, 1)]
    rows, length = self.chunk_shape[0], self.shape[0]
    return [(i, min(i + rows, length)) for i in range(0, length, rows)]


def encode(specs: Mapping[str, ArraySpec]) -> bytes:
  """Returns the JSON for variables named `mdl_vars.params...`.

  The same specs give the same bytes, whatever their order.
  """
  tree: dict[str, Any] = {}
  for name, spec in specs.items():
    *parents, leaf = name.split('.')
    node = tree
    for part in parents:
      node = node.setdefault(part, {})
    node[leaf] = {
      _TAG: True,
      'is_optax_masked_node': False,
      'unpadded_shape': list(spec.shape),
      'dtype': spec.dtype,
    }
  document = {'version': VERSION, _TREE: tree}
  return json.dumps(document, sort_keys=True).encode('ascii')


def decode(data: bytes, where: str) -> dict[str, ArraySpec]:
  """Returns the variables that the JSON describes; none for version 1.0.

  Args:
    data: The contents of `metadata/metadata`.
    where: The path to name in errors.

  Raises:
    errors.CheckpointError: It is not such JSON, or of another version.
  """
  try:
    document = msgspec.json.decode(data)
    version = document['version']
  except (ValueError, KeyError, TypeError, RecursionError) as e:
    raise errors.CheckpointError(
      f'{where} is not the metadata of a PAX checkpoint: {e!r}; convert or '
      'copy the checkpoint again'
    ) from e
  if version not in _READABLE_VERSIONS:
    raise errors.CheckpointError(
      f'{where} has version {version!r}; this program reads '
      f'{", ".join(map(str, _READABLE_VERSIONS))}'
    )
  specs: dict[str, ArraySpec] = {}
  # A walk with a stack of its own: depth is the file's to choose.
  pending = [('', document.get(_TREE, {}))]
  while pending:
    prefix, node = pending.pop()
    if not isinstance(node, dict):
      continue
    if not node.get(_TAG):
      dot = '.' if prefix else ''
      pending += [(f'{prefix}{dot}{k}', v) for k, v in node.items()]
    elif 'unpadded_shape' in node and not node.get('is_optax_masked_node'):
      shape, dtype = node['unpadded_shape'], node.get('dtype')
      try:
        specs[prefix] = ArraySpec(
          *msgspec.convert((shape, dtype), tuple[Shape, str])
        )
      except msgspec.ValidationError as e:
        raise errors.CheckpointError(
          f'{where}: {prefix} has shape {shape!r} and dtype {dtype!r}; expected'
          ' a list of sizes and the name of a type'
        ) from e
  return specs
