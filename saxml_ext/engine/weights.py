"""Converts PAX variables to weights in the form that the model reads."""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
from typing import Any, Protocol, runtime_checkable, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import layers as layers_lib
from saxml_ext.engine import variables as variables_lib
from saxml_ext.engine.numerics import quant

# 1 / softplus(0), rounded as in praxis.
_PER_SOFTPLUS = np.float32(1.442695041)

# A matrix of the model; `einsum.py` supports both types.
Matrix: TypeAlias = jax.Array | quant.QuantizedArray


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Norm:
  """A norm: scale and bias, [D] float32. RMS norms have no bias."""

  scale: jax.Array
  bias: jax.Array | None


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Layer:
  """One transformer layer.

  Quantized matrices have the form [outputs, contracted]. Heads are the first
  dimension of qkv, so its flattened outputs can still be split by heads. The
  rotated dimensions of q and k are in half-split order; see `components.py`.

  The shapes are: qkv [N / G, G + 2, H, D], with G queries and the key and value
  that they share; post [N, H, D]; up and gate [D, F]; down [F, D]; up_bias [F];
  down_bias [D]; qkv_bias [N / G, G + 2, H]; post_bias [D]. A bias or a gate is
  None if the family does not have it. ff_norm is the norm before `up`, or None
  if `up` shares that of qkv.
  """

  norm: Norm
  qkv: Matrix
  post: Matrix
  up: Matrix
  up_bias: jax.Array | None
  down: Matrix
  down_bias: jax.Array | None
  ff_norm: Norm | None = None
  qkv_bias: jax.Array | None = None
  post_bias: jax.Array | None = None
  gate: Matrix | None = None


# One entry for each layer, or one of stacked arrays; see `layers.py`.
Layers: TypeAlias = tuple[Layer, ...] | Layer


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Weights:
  """A whole model: embedding [V, D], head [D, V], head_bias [V].

  Without its own head, the model uses the embedding as the head.
  """

  embedding: jax.Array
  layers: Layers
  final_norm: Norm
  head: Matrix | None
  head_bias: jax.Array

  @property
  def stacked(self) -> bool:
    return layers_lib.is_stacked(self.layers)


def stack(weights: Weights) -> Weights:
  """Returns the model with stacked layers."""
  layers = weights.layers
  if not isinstance(layers, tuple):
    return weights
  return dataclasses.replace(weights, layers=layers_lib.stack(layers))


def assemble(leaf: Callable[[str], Any], layers: Any) -> Weights:
  """Returns weights that consist of the given leaves.

  Args:
    leaf: The function that returns the array of a field of `variables.py`
      outside the layers, or None if the family does not have it.
    layers: The layers, as in `Weights`.
  """
  return Weights(
    embedding=leaf('embedding'),
    layers=layers,
    final_norm=Norm(leaf('final_norm.scale'), leaf('final_norm.bias')),
    head=leaf('head'),
    head_bias=leaf('head_bias'),
  )


def assemble_layer(leaf: Callable[[str], Any]) -> Layer:
  """Returns a layer that consists of the leaves of `leaf`; see `assemble`."""

  def of(field: str) -> Any:
    if not field.endswith('norm'):
      return leaf(f'layers.{field}')
    scale = leaf(f'layers.{field}.scale')
    return None if scale is None else Norm(scale, leaf(f'layers.{field}.bias'))

  return Layer(**{f.name: of(f.name) for f in dataclasses.fields(Layer)})


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


def from_pax(
  variables: Mapping[str, np.ndarray],
  config: config_lib.ModelConfig,
  dtype: str = 'float32',
  quantization: str | None = None,
  quantize_head: bool = True,
  stacked: bool = False,
) -> Weights:
  """Returns a whole model from PAX variables.

  The arguments are those of `PaxReader`, and `stacked` is True for stacked
  layers.
  """
  reader = PaxReader(variables, config, dtype, quantization, quantize_head)
  # These are the largest, so they are read first, while memory for copies is
  # free.
  outside = {
    field: reader.leaf(field)
    for field, row in variables_lib.BY_FIELD.items()
    if not row.per_layer
  }
  layers = [reader.layer(i) for i in range(config.num_layers)]
  if stacked:
    return assemble(outside.get, layers_lib.stack_and_release(layers))
  return assemble(outside.get, tuple(layers))


class PaxReader:
  """Converts PAX variables to parts of a model."""

  def __init__(
    self,
    variables: Mapping[str, np.ndarray],
    config: config_lib.ModelConfig,
    dtype: str = 'float32',
    quantization: str | None = None,
    quantize_head: bool = True,
  ):
    """Stores the arguments; reads nothing.

    Args:
      variables: The arrays by name, such as
        `params.lm.embedding_lookup.emb_var`. Any prefix is allowed. Only the
        requested variables are necessary. See `StoredVariables`.
      config: The configuration of the model, whose sizes determine the shapes.
      dtype: The dtype of the matrices, or only of the embedding if the others
        are quantized. Norms and biases stay float32.
      quantization: "int8", "int8_fine" or "int8_weights" to quantize the
        matrices that multiply activations to int8, with one scale per output
        channel. The first two quantize the activations too; see `quant.py`. int8 matrices of the
        checkpoint, with their scales, are not changed. None quantizes nothing.
      quantize_head: True if the head is among these matrices. A head that is
        the embedding cannot be.

    Raises:
      ValueError: The quantization is unknown. All methods also raise it if a
        variable is missing, has another shape, is int8 where that is not
        supported, or lacks its scale.
    """
    if quantization not in quant.QUANTIZATIONS:
      raise ValueError(
        f'quantization is {quantization!r}, not one of {quant.QUANTIZATIONS}.'
      )
    tied = config.architecture.tied_head
    if tied and quantization is not None and quantize_head:
      raise ValueError(
        'the head is the embedding, which stays in float. With quantization'
        f' {quantization!r}, set quantize_head to False.'
      )
    self._table = variables_lib.table_of(config.architecture).by_field
    self._stored = StoredVariables(variables, config)
    self._config = config
    self._dtype = dtype
    self._quantization = quantization
    self._quantize_head = quantize_head

  def layer(self, index: int) -> Layer:
    """Returns one layer."""
    return assemble_layer(lambda field: self.leaf(field, index))

  def leaf(self, field: str, layer: int = 0) -> Matrix | None:
    """Returns the array, or the quantized matrix, of a field of `variables.py`.

    If models of this family do not have the field, the result is zeros for
    `head_bias`, and None for the others.
    """
    variable = self._table.get(field)
    if variable is None and field == 'head_bias':
      return jnp.zeros(self._config.vocab_size)
    if variable is None:
      return None
    if variable.is_matrix:
      return self._matrix(variable, layer)
    name, values = self._stored.arrays(variable, layer)
    if values[0].dtype == np.int8:
      raise ValueError(
        f'{name} is int8, but only the matrices of products may be quantized.'
        ' Quantize the float checkpoint with offline_quantize.'
      )
    value = self._arranged(variable, _floats(values), layer)
    if variable.is_norm_scale and not self._config.ln_direct_scale:
      value = value + 1
    return jnp.asarray(value, self._dtype if value.ndim > 1 else jnp.float32)

  def _matrix(self, variable: variables_lib.Variable, layer: int) -> Matrix:
    name, values = self._stored.arrays(variable, layer)
    contracted = [variable.kept_axes.index(a) for a in variable.contracted]
    activations = quant.activation_format(self._quantization, self._dtype)
    if values[0].dtype != np.int8:
      value = self._arranged(variable, _floats(values), layer)
      wanted = variable.field != 'head' or self._quantize_head
      if self._quantization is None or not wanted:
        return jnp.asarray(value, jnp.dtype(self._dtype))
      return quant.quantize(value, contracted, activations)
    if self._quantization is None:
      raise ValueError(
        f'{name} is int8: the checkpoint is quantized. Set quantization to'
        " 'int8' or 'int8_weights', or use the float checkpoint."
      )
    _, scales = self._stored.arrays(variable, layer, variables_lib.SCALE_SUFFIX)
    return quant.from_codes(
      self._arranged(variable, values),
      self._arranged(variable, scales, layer),
      contracted,
      activations,
    )

  def _arranged(
    self,
    variable: variables_lib.Variable,
    values: Sequence[np.ndarray],
    scaled_layer: int | None = None,
  ) -> np.ndarray:
    """Returns a variable, or its scale, in the engine's order of dimensions.

    Args:
      variable: The row of the variable.
      values: The array, or the arrays of its parts: queries, keys and values.
      scaled_layer: The layer whose scale of queries is multiplied in. None for
        codes, because their scales have it.
    """
    if not variable.parts:
      return _in_order(variable, values[0])
    query, key, value = values
    by_dim = self._table.get('layers.query_scale')
    if by_dim is not None and scaled_layer is not None:
      # praxis multiplies queries by 1.442695041 * softplus(`per_dim_scale`) and
      # by 1 / sqrt(H). The engine multiplies by the latter, and the rows get
      # the former.
      _, [theta] = self._stored.arrays(by_dim, scaled_layer)
      factor = np.logaddexp(theta.astype(np.float32), 0, dtype=np.float32)
      query = query * (_PER_SOFTPLUS * factor)
    rotary = self._config.rotary_dim
    if rotary and self._config.architecture.interleaved:
      # Queries and keys may have any common order of dimensions, because their
      # product is the same. Halves are faster to rotate than interleaved pairs.
      halves = [
        *range(0, rotary, 2),
        *range(1, rotary, 2),
        *range(rotary, self._config.head_dim),
      ]
      query, key = query[..., halves], key[..., halves]
    query, key, value = map(_in_order, variable.parts, (query, key, value))
    query = query.reshape(len(key), -1, *query.shape[1:])
    return np.concatenate([query, key[:, None], value[:, None]], 1)


def _floats(values: Sequence[np.ndarray]) -> list[np.ndarray]:
  return [value.astype(np.float32, copy=False) for value in values]


def _in_order(
  variable: variables_lib.Variable, value: np.ndarray
) -> np.ndarray:
  """Returns a variable, or a scale of its rank, in the engine's order."""
  return value.transpose([variable.axes.index(a) for a in variable.kept_axes])
