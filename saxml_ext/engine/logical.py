"""Maps each logical dimension to the axis of the device mesh that splits it.

The mesh's axes are those of Sax's ICI_MESH_SHAPE:

  replica, data   split the slots: each device decodes its own requests
  model           splits each layer: heads, feed-forward and vocabulary

Logical names:

  layers     L, the leading dimension of stacked layers
  slots      S, of the KV cache and of all other state per request
  embed      D, the residual stream
  rows       R, of the residual stream; see `parallel/tensor_parallel.py`
  heads      N, of queries
  kv_heads   N / G, of keys and values, where G queries share them
  group      G + 2, the queries of such a head, its key and its value
  head_dim   H
  queries    N * H, a norm of all queries of a token
  keys       N / G * H, a norm of all its keys
  hidden     F, the feed-forward layer
  vocab      V, of embedding and head
"""

from collections.abc import Iterator, Mapping
import contextlib
import math

import jax

MESH_AXES = ('replica', 'data', 'model')

# The width of a TPU's registers. If the length of keys and values is not a
# multiple of it, XLA copies them in each program to pad them.
TILE = 128

RULES: Mapping[str, str | tuple[str, ...] | None] = {
  'layers': None,
  'slots': ('replica', 'data'),
  'embed': None,
  'rows': 'model',
  'heads': 'model',
  'kv_heads': 'model',
  'group': None,
  'head_dim': None,
  'queries': None,
  'keys': None,
  'hidden': 'model',
  'vocab': 'model',
}


_target: str | None = None


@contextlib.contextmanager
def targeting(name: str) -> Iterator[None]:
  """Traces programs for another platform than that of this process."""
  global _target
  _target = name
  try:
    yield
  finally:
    _target = None


def axes(name: str) -> tuple[str, ...]:
  """Returns the mesh axes that split dimensions of this logical name."""
  rule = RULES[name]
  if rule is None:
    return ()
  return (rule,) if isinstance(rule, str) else rule


def parts(name: str) -> int:
  """Returns the number of parts of such a dimension; 1 without a mesh."""
  mesh = jax.sharding.get_abstract_mesh()
  return 1 if mesh.empty else math.prod(mesh.shape[axis] for axis in axes(name))


def spec(*names: str | None) -> jax.sharding.PartitionSpec:
  """Returns the partition spec of dimensions with these logical names.

  None stands for a dimension that is not split.
  """
  return jax.sharding.PartitionSpec(*[n and RULES[n] for n in names])


def platform() -> str:
  """Returns the platform of the current mesh's devices.

  Without a mesh, it is that of this process. `targeting` overrides both.
  """
  if _target is not None:
    return _target
  device = jax.sharding.get_abstract_mesh().abstract_device
  return jax.default_backend() if device is None else device.platform
