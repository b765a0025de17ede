"""Converts shapes and types of variables to and from paxml's JSON.

`metadata/metadata` contains the version of the format. For every variable of
the model it contains the shape and type, in a tree whose levels are the parts
of the variable's name:

  {"version": 1.1, "train_state_metadata": {"mdl_vars": {"params": {"lm": ...
     {"_array_metadata_tag": true, "is_optax_masked_node": false,
      "unpadded_shape": [4096], "dtype": "float32"}}}}}

Version 1.1 uses one zarr directory per variable. Version 1.2 stores the same
arrays in OCDBT.
"""

from collections.abc import Mapping
import dataclasses
import json
import math
from typing import Annotated, Any

import ml_dtypes  # Registers type names such as bfloat16.
import msgspec
import numpy as np

from saxml_ext.pax import errors

VERSION = 1.1
_READABLE_VERSIONS = (1.0, 1.1, 1.2)
_TAG = '_array_metadata_tag'
_TREE = 'train_state_metadata'

# The largest variable of GPT-J 6B has 826 MB in float32. Chunks are compressed
# and decompressed in parallel, and several are in memory at once. So they
# should be neither a whole variable nor many small files. A row of
# combined_qkv.w of that model has exactly this size. Converting the model had a
# peak of 1.2 GiB.
MAX_CHUNK_BYTES = 1 << 26

# The dims of a variable in JSON.
Shape = tuple[Annotated[int, msgspec.Meta(ge=0)], ...]


@dataclasses.dataclass(frozen=True)
class ArraySpec:
  """The shape and the NumPy or ml_dtypes type name of one variable."""

  shape: tuple[int, ...]
  dtype: str

  def __str__(self) -> str:
    return f'{self.dtype}{list(self.shape)}'

  @classmethod
  def from_array(cls, value: np.ndarray) -> 'ArraySpec':
    """Returns the shape and the type of an array."""
    return cls(value.shape, value.dtype.name)

  @property
  def _item_bytes(self) -> int:
    return np.dtype(getattr(ml_dtypes, self.dtype, self.dtype)).itemsize

  @property
  def num_bytes(self) -> int:
    """The number of bytes of all values."""
    return math.prod(self.shape) * self._item_bytes

  @property
  def chunk_shape(self) -> tuple[int, ...]:
    """The shape of the chunks, which are as long as possible in the last axes.

    If an axis is split, its chunks have about the same length. So the last
    chunk has little padding.
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
    """The ranges [begin, end) along the first axis that are written at once.

    Each range consists of whole chunks. It has at most MAX_CHUNK_BYTES, unless
    a single row is larger. A scalar is one range, [0, 1).
    """
    if not self.shape:
      return [(0, 1)]
    rows, length = self.chunk_shape[0], self.shape[0]
    return [(i, min(i + rows, length)) for i in range(0, length, rows)]


def encode(specs: Mapping[str, ArraySpec]) -> bytes:
  """Returns the JSON for variables named `mdl_vars.params...`.

  The same specs give the same bytes in any order.
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
    where: The path of the file, for messages.

  Raises:
    errors.CheckpointError: The JSON is malformed or has another version.
  """
  try:
    document = msgspec.json.decode(data)
    version = document['version']
  except (ValueError, KeyError, TypeError, RecursionError) as e:
    raise errors.CheckpointError(
      f'{where} is not the metadata of a PAX checkpoint: {e!r}. {errors.AGAIN}'
    ) from e
  if version not in _READABLE_VERSIONS:
    raise errors.CheckpointError(
      f'{where} has version {version!r}. Supported versions: '
      f'{", ".join(map(str, _READABLE_VERSIONS))}.'
    )
  specs: dict[str, ArraySpec] = {}
  # The walk uses its own stack instead of recursion, because a malicious file
  # may be nested deeply.
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
          f'{where}: {prefix} has shape {shape!r} and dtype {dtype!r}. Expected'
          ' a list of sizes and the name of a type.'
        ) from e
  return specs
