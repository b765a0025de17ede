"""Whether made-up weights have room here.

A checkpoint that does not fit is seldom at hand, but random weights of 175
billion numbers are a command away on any laptop, where the system would end the
model server for lack of memory.
"""

import math
from typing import Any

import jax

from saxml_ext.common import errors
from saxml_ext.server import platforms

_GIB = 2**30
# A remedy, after "publish with" or the like.
SMALLER = (
  'a smaller model by overrides, for example of NUM_LAYERS, MODEL_DIMS,'
  ' NUM_HEADS and HIDDEN_DIMS'
)


def check(model_path: str, shapes: Any) -> None:
  """Refuses weights that are larger than the memory that is free.

  Args:
    model_path: of the serving params, for the message.
    shapes: tree of jax.ShapeDtypeStruct; those without a sharding go to one
      device.

  Raises:
    errors.InvalidArgument: this process's part of them does not fit.
  """
  leaves = jax.tree.leaves(shapes)
  needed = size(shapes)
  free = platforms.memory_bytes()
  devices = jax.local_devices()
  if all(leaf.sharding is None for leaf in leaves) and _have_own(devices):
    free //= len(devices)
  if needed > free:
    raise errors.InvalidArgument(
      f'{model_path}: random weights of these sizes take'
      f' {needed / _GIB:,.1f} GiB of this host, which has {free / _GIB:,.1f} GiB'
      f' free: use more devices or hosts (ICI_MESH_SHAPE), or publish {SMALLER}'
    )


def size(shapes: Any) -> int:
  """Bytes that arrays take in this process, on all of its devices together.

  Args:
    shapes: tree of jax.ShapeDtypeStruct.
  """
  return sum(map(_bytes, jax.tree.leaves(shapes)))


def _bytes(leaf: jax.ShapeDtypeStruct) -> int:
  """Of an array in this process, on all of its devices together."""
  shape, copies = leaf.shape, 1
  if leaf.sharding is not None:
    shape = leaf.sharding.shard_shape(leaf.shape)
    copies = len(leaf.sharding.addressable_devices)
  return math.prod(shape) * leaf.dtype.itemsize * copies


def _have_own(devices: list[jax.Device]) -> bool:
  """Whether each device has memory of its own, as processors do not."""
  return devices[0].platform != 'cpu'
