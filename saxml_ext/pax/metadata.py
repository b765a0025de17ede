"""The JSON that paxml keeps beside a checkpoint's arrays.

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
from typing import Any

from saxml_ext.pax import errors

VERSION = 1.1
_READABLE_VERSIONS = (1.0, 1.1, 1.2)
_TAG = '_array_metadata_tag'
_TREE = 'train_state_metadata'


@dataclasses.dataclass(frozen=True)
class ArraySpec:
  """Shape and NumPy (or ml_dtypes) type name of one variable."""

  shape: tuple[int, ...]
  dtype: str

  def __str__(self) -> str:
    return f'{self.dtype}{list(self.shape)}'


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
    data: contents of `metadata/metadata`.
    where: path to name in errors.

  Raises:
    errors.CheckpointError: it is not such JSON, or of another version.
  """
  try:
    document = json.loads(data)
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
    if node.get(_TAG):
      if node.get('is_optax_masked_node') or 'unpadded_shape' not in node:
        continue
      specs[prefix] = _array_spec(node, prefix, where)
    else:
      dot = '.' if prefix else ''
      pending += [(f'{prefix}{dot}{k}', v) for k, v in node.items()]
  return specs


def _array_spec(node: dict[str, Any], name: str, where: str) -> ArraySpec:
  shape, dtype = node['unpadded_shape'], node.get('dtype')
  if (
    not isinstance(shape, list)
    or not isinstance(dtype, str)
    or not all(isinstance(n, int) and n >= 0 for n in shape)
  ):
    raise errors.CheckpointError(
      f'{where}: {name} has shape {shape!r} and dtype {dtype!r}; expected a '
      'list of sizes and the name of a type'
    )
  return ArraySpec(tuple(shape), dtype)
