"""Reads the variables of a PAX checkpoint in one form, layer by layer."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import numpy as np

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import variables as variables_lib


@runtime_checkable
class Parts(Protocol):
  """A Mapping of variables that can read a part of a variable.

  The variables that layers of 175 billion parameters share exceed a host's
  memory.
  """

  def read_part(
    self, name: str, slices: tuple[slice | int, ...] | slice | int
  ) -> np.ndarray:
    """Reads a part of one variable, for example `np.s_[10, :, 0:5]`."""


class StoredVariables:
  """The variables of a model by their rows in `variables.py`.

  A checkpoint may have a variable for each layer, or one that all layers share.
  It may have queries, keys and values in one variable or in three. This class
  reads them one layer at a time, in one form.
  """

  def __init__(
    self, variables: Mapping[str, np.ndarray], config: config_lib.ModelConfig
  ):
    """Stores the arguments; reads nothing.

    All methods raise ValueError if a variable is missing or has another shape.

    Args:
      variables: The arrays by name, with any prefix. If it is `Parts`, shared
        variables are read one layer at a time.
      config: The configuration of the model, whose sizes determine the shapes.
    """
    self._variables = variables
    self._config = config
    self._repeated = variables_lib.is_repeated(variables)

  def arrays(
    self, variable: variables_lib.Variable, layer: int, suffix: str = ''
  ) -> tuple[str, list[np.ndarray]]:
    """Reads a variable of one layer.

    Args:
      variable: The row of the variable.
      layer: The index of the layer.
      suffix: SCALE_SUFFIX to read the scales of int8 matrices, with size 1 at
        the dimensions that products sum over.

    Returns:
      The full name and the array. If a variable has parts, the name of the
      first and the arrays of all.
    """
    parts = variable.parts
    if parts and self._has(parts[0].below_prefix(layer, self._repeated)):
      values = [self._array(part, layer, suffix) for part in parts]
      return values[0][0], [value for _, value in values]
    name, value = self._array(variable, layer, suffix)
    return name, list(value) if parts else [value]

  def _array(
    self, variable: variables_lib.Variable, layer: int, suffix: str
  ) -> tuple[str, np.ndarray]:
    below = variable.below_prefix(layer, self._repeated) + suffix
    dims = variable.contracted_dims if suffix else ()
    shape = tuple(np.delete(variable.shape(self._config), dims).tolist())
    name, value = self._layer(variable, below, layer)
    if variable.field == 'head_bias' and value.ndim == 1:
      # The bias may be longer, because Sax's converter truncates only the
      # matrix to the vocabulary.
      value = value[: shape[0]]
    _check_shape(name, value.shape, shape)
    return name, np.expand_dims(value, dims)

  def _has(self, below_prefix: str) -> bool:
    ending = f'.{below_prefix}'
    return any(f'.{name}'.endswith(ending) for name in self._variables)

  def _layer(
    self, variable: variables_lib.Variable, below_prefix: str, layer: int
  ) -> tuple[str, np.ndarray]:
    """Returns the full name and the array, or one layer of it."""
    name = variables_lib.find(self._variables, below_prefix)
    if not self._repeated or not variable.per_layer:
      return name, np.asarray(self._variables[name])
    if isinstance(self._variables, Parts):
      return name, np.asarray(self._variables.read_part(name, layer))
    value = np.asarray(self._variables[name])
    _check_shape(name, value.shape[:1], (self._config.num_layers,))
    return name, value[layer]


def _check_shape(
  name: str, shape: tuple[int, ...], expected: tuple[int, ...]
) -> None:
  if shape != expected:
    raise ValueError(
      f"{name} has shape {shape}, but the model's sizes require {expected}."
    )
