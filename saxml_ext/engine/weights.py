"""Converts PAX variables to weights in the form that the model reads."""

from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
import contextvars
import dataclasses
import functools
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import layers as layers_lib
from saxml_ext.engine import stored_variables
from saxml_ext.engine import variables as variables_lib
from saxml_ext.engine.numerics import int4
from saxml_ext.engine.numerics import quant

# 1 / softplus(0), rounded as in praxis.
_PER_SOFTPLUS = np.float32(1.442695041)
_READERS = 2

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
  if `up` shares that of qkv. With the norm policy "post", norm and ff_norm
  follow `post` and `down`. query_norm and key_norm are those of `qk_norm`.
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
  query_norm: Norm | None = None
  key_norm: Norm | None = None


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

  def value(field: str) -> Any:
    if not field.endswith('norm'):
      return leaf(f'layers.{field}')
    scale = leaf(f'layers.{field}.scale')
    return None if scale is None else Norm(scale, leaf(f'layers.{field}.bias'))

  return Layer(**{f.name: value(f.name) for f in dataclasses.fields(Layer)})


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
  layers. Then two threads read them, so memory for two layers is needed.
  """
  reader = PaxReader(variables, config, dtype, quantization, quantize_head)
  fields = [f for f, row in variables_lib.BY_FIELD.items() if not row.per_layer]
  stack = layers_lib.Stack(config.num_layers)

  def put(index: int) -> None:
    stack.put(index, reader.layer(index))

  indices = range(config.num_layers)
  # The variables outside the layers are the largest, so they are read first.
  parts: list[Callable[[], Any]] = [
    functools.partial(reader.leaf, field) for field in fields
  ]
  if not stacked:
    outside = dict(zip(fields, [read() for read in parts])).get
    return assemble(outside, tuple(map(reader.layer, indices)))
  parts += [functools.partial(put, i) for i in indices]
  outside = dict(zip(fields, _in_threads(parts))).get
  return assemble(outside, stack.stacked())


def _in_threads(calls: Sequence[Callable[[], Any]]) -> list[Any]:
  """Returns the results of functions that read variables."""
  device = jax.config.jax_default_device

  def run(context: contextvars.Context, call: Callable[[], Any]) -> Any:
    with jax.default_device(device):
      return context.run(call)

  contexts = [contextvars.copy_context() for _ in calls]
  with futures.ThreadPoolExecutor(_READERS) as pool:
    return list(pool.map(run, contexts, calls))


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
        requested variables are necessary. See `stored_variables.py`.
      config: The configuration of the model, whose sizes determine the shapes.
      dtype: The dtype of the matrices, or only of the embedding if the others
        are quantized. Norms and biases stay float32.
      quantization: "int8", "int8_fine" or "int8_weights" to quantize matrices
        to int8, with one scale per output channel; see `quant.py`. int8
        matrices of the checkpoint, with their scales, are not changed. "int4"
        quantizes matrices in float to 4 bits; see `int4.py`. "fp8" quantizes
        them to fp8. None quantizes nothing.
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
    self._stored = stored_variables.StoredVariables(variables, config)
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
    dtype = jnp.dtype(self._dtype if values[0].ndim > 1 else jnp.float32)
    value = self._arranged(variable, _floats(values, dtype), layer)
    if variable.is_norm_scale and not self._config.ln_direct_scale:
      value = value + 1
    return jnp.asarray(value, dtype)

  def _matrix(self, variable: variables_lib.Variable, layer: int) -> Matrix:
    name, values = self._stored.arrays(variable, layer)
    contracted = [variable.kept_axes.index(a) for a in variable.contracted]
    is_head = variable.field == 'head'
    activations = quant.activation_format(
      self._quantization, self._dtype, is_head
    )
    if values[0].dtype != np.int8:
      quantizes = not is_head or self._quantize_head
      in_float = self._quantization is None or not quantizes
      dtype = jnp.dtype(self._dtype)
      # Scales of queries are multiplied, and codes are computed, in float32.
      as_stored = in_float and 'layers.query_scale' not in self._table
      values = _floats(values, dtype if as_stored else None)
      value = self._arranged(variable, values, layer)
      if in_float:
        return jnp.asarray(value, dtype)
      if activations == quant.INT4:
        return int4.quantize(value, contracted)
      return quant.quantize(value, contracted, activations)
    if self._quantization in quant.NOT_INT8:
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


def _floats(
  values: Sequence[np.ndarray], kept: np.dtype | None = None
) -> list[np.ndarray]:
  """Returns arrays as float32, or unchanged if all have the type `kept`."""
  if kept is not None and all(value.dtype == kept for value in values):
    return list(values)
  return [value.astype(np.float32, copy=False) for value in values]


def _in_order(
  variable: variables_lib.Variable, value: np.ndarray
) -> np.ndarray:
  """Returns a variable, or a scale of its rank, in the engine's order."""
  return value.transpose([variable.axes.index(a) for a in variable.kept_axes])
