"""The part of a model's variables that one process sees.

It has the names of the whole, and the shapes of a model with fewer heads,
hidden units and tokens, so that whatever reads a checkpoint reads it.
"""

from collections.abc import Iterator, Mapping
import dataclasses
from typing import Any, Protocol

import numpy as np

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import variables as variables_lib


class Spec(Protocol):
  """What is known of a variable before it is read."""

  @property
  def shape(self) -> tuple[int, ...]:
    """Of the whole variable."""

  @property
  def dtype(self) -> Any:
    """Of its elements, such as 'int8'."""


class Source(Protocol):
  """Variables that are read in parts, such as those of a checkpoint."""

  @property
  def specs(self) -> Mapping[str, Spec]:
    """What is known of each, by name."""

  def read_part(self, name: str, slices: tuple[slice, ...]) -> np.ndarray:
    """Reads a part of one."""


@dataclasses.dataclass(frozen=True)
class Range:
  """What a process holds of an axis: from begin to end of `size`.

  What goes beyond `size` is padding.
  """

  begin: int
  end: int
  size: int

  @property
  def length(self) -> int:
    return self.end - self.begin

  @property
  def whole(self) -> bool:
    return (self.begin, self.end) == (0, self.size)

  @property
  def stored(self) -> slice:
    """What of it there is to read."""
    return slice(min(self.begin, self.size), min(self.end, self.size))


class View(Mapping):
  """Variables of which only the ranges are seen, padded where they go beyond.

  It is `stored_variables.Parts`: of what all layers share, one is read.
  """

  def __init__(
    self,
    source: Source,
    config: config_lib.ModelConfig,
    ranges: Mapping[str, Range],
  ):
    self._source = source
    self._table = variables_lib.table_of(config.architecture)
    self._repeated = variables_lib.is_repeated(source.specs)
    self._sizes = variables_lib.axis_sizes(config)
    self._ranges = ranges

  def __getitem__(self, name: str) -> np.ndarray:
    row, axes = _axes(self._table, name, self._repeated)
    return self._read(name, row, axes, ())

  def read_part(self, name: str, layer: int) -> np.ndarray:
    """One layer of a variable that all of them share."""
    row, axes = _axes(self._table, name, self._repeated)
    return self._read(name, row, axes[1:], (slice(layer, layer + 1),))[0]

  def _read(
    self,
    name: str,
    row: variables_lib.Variable,
    axes: tuple[str, ...],
    leading: tuple[slice, ...],
  ) -> np.ndarray:
    """Reads what is seen of a variable's `axes`, and `leading` before them."""
    whole = tuple(self._source.specs[name].shape)[len(leading) :]
    shape = tuple(self._sizes[axis] for axis in axes)
    # A head's bias may be longer, see `weights.PaxReader`.
    longer = row.field == 'head_bias' and whole > shape
    if whole != shape and not longer:
      raise ValueError(
        f"{name} has shape {whole}; the model's sizes make it {shape}."
      )
    ranges = [self._ranges[axis] for axis in axes]
    slices = (*leading, *(r.stored for r in ranges))
    value = self._source.read_part(name, slices)
    missing = [(0, 0) for _ in leading]
    missing += [
      (0, r.length - n) for r, n in zip(ranges, value.shape[len(leading) :])
    ]
    if not any(after for _, after in missing):
      return value
    # As `sharding.pad` does.
    fill = -np.inf if row.field == 'head_bias' else 0
    return np.pad(value, missing, constant_values=fill)

  def __contains__(self, name: object) -> bool:
    return name in self._source.specs

  def __iter__(self) -> Iterator[str]:
    return iter(self._source.specs)

  def __len__(self) -> int:
    return len(self._source.specs)


def _axes(
  table: variables_lib.Table, name: str, repeated: bool
) -> tuple[variables_lib.Variable, tuple[str, ...]]:
  """The row of a variable, or of the matrix that it scales, and its axes."""
  matrix = name.removesuffix(variables_lib.SCALE_SUFFIX)
  row = table.named(matrix)
  if row is None:
    raise ValueError(f'{matrix} is no variable of such a model.')
  axes = row.axes
  if matrix != name:
    axes = tuple(a for a in axes if a not in row.contracted)
  return row, ('layers', *axes) if repeated and row.per_layer else axes
