"""Runs the layers of a model one after the other.

A model's layers, and the KV that they keep, come in one of two forms:

  unrolled  a tuple with one entry per layer. The program repeats the layer's
            code, so compile time and program size grow with depth. On CPU this
            is the fast form: a loop over stacked arrays copies each layer's
            slice, 123 ms of CPU time a step against 38 ms, at 6 layers of
            width 256, 32 slots and 512 + 128 tokens.
  stacked   one entry whose arrays have a leading dim [L]. The program is a loop
            with the layer's code in it once. This is the form for TPU, where
            slices are read, and the cache is written, in place.

The model's code is the same for both: `fold` calls it with a layer and an index
that `at` and the functions of `cache.py` understand.
"""

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import jax
import jax.numpy as jnp

Carry = TypeVar('Carry')

# Which layer: a number while tracing an unrolled model, else an array [].
Index: TypeAlias = int | jax.Array


def is_stacked(layers: Any) -> bool:
  """Returns True if layers, or their KV, are stacked."""
  return not isinstance(layers, tuple)


def at(layers: Any, index: Index) -> Any:
  """Returns one layer of either form."""
  if not is_stacked(layers):
    return layers[index]
  return jax.tree.map(lambda x: slice_of(x, index), layers)


def slice_of(stacked: jax.Array, index: Index) -> jax.Array:
  """Returns stacked[index] for 0 <= index < L, without a check of the range."""
  starts = (index, *[0] * (stacked.ndim - 1))
  sizes = (1, *stacked.shape[1:])
  # Bounds that might be negative would cost a select that hides from XLA that
  # the slice can be read in place.
  return jax.lax.dynamic_slice(
    stacked, starts, sizes, allow_negative_indices=False
  )[0]


def fold(
  body: Callable[[Carry, Index, Any], Carry],
  carry: Carry,
  layers: Any,
  count: int,
) -> Carry:
  """Returns the carry after `body(carry, index, layer)` for the first layers.

  Args:
    body: one layer.
    carry: what it passes on; for stacked layers its shapes must not change.
    layers: either form.
    count: static.
  """
  if not is_stacked(layers):
    for index in range(count):
      carry = body(carry, index, layers[index])
    return carry
  return jax.lax.fori_loop(
    0, count, lambda i, carry: body(carry, i, at(layers, i)), carry
  )


def stack(layers: tuple[Any, ...]) -> Any:
  """Returns the stacked form of unrolled layers; needs the memory of both."""
  return jax.tree.map(lambda *leaves: jnp.stack(leaves), *layers)
