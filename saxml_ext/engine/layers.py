"""Runs the layers of a model one after the other.

A model's layers and their KV have one of two forms:

- Unrolled: a tuple with one entry per layer. The program repeats the layer's
  code, so compile time and program size grow with depth.
- Stacked: one entry whose arrays have a leading dimension [L]. The program is a
  loop that contains the layer's code once. TPUs read slices and write the cache
  in place. XLA for CPU would copy the slice of each matrix, so the engine's
  kernels get the whole array and the number of the layer (`Slice`).

The model's code is the same for both. `fold` calls it with a layer and an index
for `at` and the functions of `cache.py`.
"""

from collections.abc import Callable
import dataclasses
import math
import threading
from typing import Any, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

Carry = TypeVar('Carry')

_LINE = 64  # The bytes of a line of a processor's cache.

# The index of a layer: a number in an unrolled model, or an array [] in a
# stacked one.
Index: TypeAlias = int | jax.Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Slice:
  """A layer of a stacked matrix, which kernels read without a copy.

  Attributes:
    stacked: The matrices of all layers, [L, ...].
    index: The index of the layer, [] int32.
  """

  stacked: jax.Array
  index: jax.Array

  @property
  def shape(self) -> tuple[int, ...]:
    return self.stacked.shape[1:]

  @property
  def dtype(self) -> jnp.dtype:
    return self.stacked.dtype

  def array(self) -> jax.Array:
    """Returns the layer, which XLA copies."""
    return slice_of(self.stacked, self.index)


def array_of(x: jax.Array | Slice) -> jax.Array:
  """Returns an array as it is, and the copy of a slice."""
  return x.array() if isinstance(x, Slice) else x


def stacked_of(x: jax.Array | Slice) -> tuple[jax.Array, Index]:
  """Returns the array that a kernel reads, and the layer in it."""
  return (x.stacked, x.index) if isinstance(x, Slice) else (x, 0)


def is_stacked(layers: Any) -> bool:
  """Returns True if layers, or their KV, are stacked."""
  return not isinstance(layers, tuple)


def at(layers: Any, index: Index) -> Any:
  """Returns one layer of unrolled or stacked layers."""
  if not is_stacked(layers):
    return layers[index]
  return jax.tree.map(lambda x: slice_of(x, index), layers)


def in_place(layers: Any, index: Index) -> Any:
  """Returns what `at` does, but with matrices as `Slice` if kernels read them.

  Kernels are not used on meshes. Vectors, such as norms, biases and scales, are
  small and are copied.
  """
  if not is_stacked(layers) or not jax.sharding.get_abstract_mesh().empty:
    return at(layers, index)

  def leaf(path: tuple[Any, ...], x: jax.Array) -> jax.Array | Slice:
    names = [getattr(key, 'name', '') for key in path]
    if any(name.endswith(('norm', 'bias', 'scale')) for name in names):
      return slice_of(x, index)
    return Slice(x, jnp.int32(index))

  return jax.tree_util.tree_map_with_path(leaf, layers)


def slice_of(stacked: jax.Array, index: Index) -> jax.Array:
  """Returns stacked[index] for 0 <= index < L, without a range check."""
  starts = (index, *[0] * (stacked.ndim - 1))
  sizes = (1, *stacked.shape[1:])
  # If the bounds could be negative, XLA would add a select. It would then fail
  # to read the slice in place.
  return jax.lax.dynamic_slice(
    stacked, starts, sizes, allow_negative_indices=False
  )[0]


def fold(
  body: Callable[[Carry, Index, Any], Carry],
  carry: Carry,
  layers: Any,
  count: int,
  read: Callable[[Any, Index], Any] = at,
) -> Carry:
  """Returns the carry after `body(carry, index, layer)` for the first layers.

  Args:
    body: The function that runs one layer.
    carry: The first carry. With stacked layers its shapes must not change.
    layers: The layers, unrolled or stacked.
    count: The number of layers to run. Static.
    read: The function that returns a stacked layer, `at` or `in_place`.
  """
  if not is_stacked(layers):
    for index in range(count):
      carry = body(carry, index, layers[index])
    return carry
  return jax.lax.fori_loop(
    0, count, lambda i, carry: body(carry, i, read(layers, i)), carry
  )


def stack(layers: tuple[Any, ...]) -> Any:
  """Returns the stacked form of unrolled layers; requires memory for both."""
  return jax.tree.map(lambda *leaves: jnp.stack(leaves), *layers)


class Stack:
  """Collects layers one by one in their stacked form, in any order."""

  def __init__(self, count: int):
    """Creates the stack of `count` layers."""
    self._count = count
    self._lock = threading.Lock()
    self._arrays: list[np.ndarray] = []
    self._tree: Any = None

  def put(self, index: int, layer: Any) -> None:
    """Copies a layer of arrays on the host. Threads may do this together."""
    leaves, tree = jax.tree.flatten(layer)
    with self._lock:
      if self._tree is None:
        self._tree = tree
        self._arrays = [
          _aligned((self._count, *x.shape), x.dtype) for x in leaves
        ]
    for array, leaf in zip(self._arrays, leaves, strict=True):
      array[index] = leaf

  def stacked(self) -> Any:
    """Returns the stacked form, once all layers are in it."""
    # A CPU uses the memory of arrays that are aligned.
    return self._tree.unflatten(map(jax.device_put, self._arrays))


def _aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
  """Returns an array that starts at the line of a cache."""
  size = math.prod(shape) * dtype.itemsize
  memory = np.empty(size + _LINE, np.uint8)
  begin = -memory.ctypes.data % _LINE
  return memory[begin : begin + size].view(dtype).reshape(shape)
