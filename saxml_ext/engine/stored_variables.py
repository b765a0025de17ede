"""Reads the variables of a model, in whichever of praxis' forms they are.

A checkpoint may keep a variable for each layer, or one that all layers share,
and queries, keys and values together or apart. Whoever makes weights of them
wants one layer's, together.
"""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import numpy as np

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import variables as variables_lib


@runtime_checkable
class Parts(Protocol):
  """What reads a part of a variable, as a Mapping of variables may.

  What the layers of 175 billion parameters share is more than a host holds.
  """

  def read_part(
    self, name: str, slices: tuple[slice | int, ...] | slice | int
  ) -> np.ndarray:
    """A part of one variable, for example `np.s_[10, :, 0:5]` of it."""


class StoredVariables:
  """The variables of a model by their rows in `variables.py`."""

  def __init__(
    self, variables: Mapping[str, np.ndarray], config: config_lib.ModelConfig
  ):
    """Reads nothing yet.

    Args:
      variables: name -> array, with any prefix. If it is `Parts`, of variables
        that all layers share one layer is read at a time.
      config: sizes; every shape is checked against it.

    All methods raise ValueError for a variable that is missing or has another
    shape.
    """
    self._variables = variables
    self._config = config
    self._repeated = variables_lib.is_repeated(variables)

  def arrays(
    self, variable: variables_lib.Variable, layer: int, suffix: str = ''
  ) -> tuple[str, list[np.ndarray]]:
    """Reads a variable of one layer.

    Args:
      variable: Its row.
      layer: The index of the layer.
      suffix: SCALE_SUFFIX reads the scales of int8 matrices, which get size 1
        at the dims that products sum over.

    Returns:
      The whole name, and the array; of a variable that has parts, the name of
      the first and the arrays of all.
    """
    parts = variable.parts
    joined = self._config.architecture.joined_qkv
    if parts and (
      not joined or self._has(parts[0].below_prefix(layer, self._repeated))
    ):
      found = [self._array(part, layer, suffix) for part in parts]
      return found[0][0], [value for _, value in found]
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
      # It may be longer: Sax's converter cuts the matrix to the vocabulary but
      # not the bias.
      value = value[: shape[0]]
    _check_shape(name, value.shape, shape)
    return name, np.expand_dims(value, dims)

  def _has(self, below_prefix: str) -> bool:
    ending = f'.{below_prefix}'
    return any(f'.{name}'.endswith(ending) for name in self._variables)

  def _layer(
    self, variable: variables_lib.Variable, below_prefix: str, layer: int
  ) -> tuple[str, np.ndarray]:
    """Whole name and array of what is called so, or one layer's part of it."""
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
      f"{name} has shape {shape}; the model's sizes make it {expected}."
    )
