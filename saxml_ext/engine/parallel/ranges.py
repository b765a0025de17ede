"""Describes the range of each axis of weights that a process holds."""

import dataclasses

import jax
import numpy as np

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import logical
from saxml_ext.engine import sharding
from saxml_ext.engine import variables as variables_lib


@dataclasses.dataclass(frozen=True)
class Range:
  """The range of an axis that a process holds.

  Attributes:
    begin: The first index of the range.
    end: The index after the last.
    size: The length of the axis in a checkpoint.
    repeats: The number of times that each index of a checkpoint is repeated.
      The range counts the repetitions. Its indices beyond size * repeats are
      padding.
  """

  begin: int
  end: int
  size: int
  repeats: int = 1

  @property
  def length(self) -> int:
    return self.end - self.begin

  @property
  def whole(self) -> bool:
    return (self.begin, self.end) == (0, self.size * self.repeats)

  @property
  def stored(self) -> slice:
    """The part of the checkpoint's axis that the range needs."""
    end = -(-self.end // self.repeats)
    return slice(
      min(self.begin // self.repeats, self.size), min(end, self.size)
    )

  def repeated(self, stored: np.ndarray, dim: int) -> np.ndarray:
    """Returns the range without its padding, from what is `stored`."""
    if self.repeats == 1:
      return stored
    first = self.begin % self.repeats
    indices = np.arange(first, first + self.length) // self.repeats
    return np.take(stored, indices, dim)


def local_ranges(
  config: config_lib.ModelConfig, mesh: jax.sharding.Mesh
) -> dict[str, Range]:
  """Returns the range of each axis that this process's devices hold."""
  result = {}
  for axis, every in whole(config, mesh).items():
    size = every.end
    if axis == 'vocab':
      size = sharding.padded_vocab(mesh, size)
    own = jax.sharding.NamedSharding(mesh, logical.spec(axis))
    [part] = box(own, (size,))
    result[axis] = dataclasses.replace(every, begin=part.start, end=part.stop)
  return result


def whole(
  config: config_lib.ModelConfig, mesh: jax.sharding.Mesh
) -> dict[str, Range]:
  """Returns all of each axis, with padded heads."""
  padded = variables_lib.axis_sizes(sharding.padded(mesh, config))
  repeats = {'kv_heads': sharding.kv_repeats(mesh, config)}
  return {
    axis: Range(0, padded[axis], size, repeats.get(axis, 1))
    for axis, size in variables_lib.axis_sizes(config).items()
  }


def box(
  own: jax.sharding.Sharding, shape: tuple[int, ...]
) -> tuple[slice, ...]:
  """Returns the smallest box that contains this process's part of an array."""
  indices = own.addressable_devices_indices_map(shape).values()
  bounds = [
    [part.indices(size)[:2] for part, size in zip(index, shape)]
    for index in indices
    if index is not None
  ]
  return tuple(
    slice(min(begin for begin, _ in dim), max(end for _, end in dim))
    for dim in zip(*bounds)
  )
