"""Weights as the model reads them, made from PAX variables."""

from collections.abc import Callable, Mapping
import dataclasses
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import layers as layers_lib
from saxml_ext.engine import variables as variables_lib
from saxml_ext.engine.numerics import quant

# A matrix of the model; see `einsum.py`, which understands both.
Matrix: TypeAlias = jax.Array | quant.QuantizedArray


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Norm:
  """A layer norm: scale, bias [D], float32."""

  scale: jax.Array
  bias: jax.Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Layer:
  """One transformer layer.

  qkv [N, 3, H, D]; post [N, H, D]; up [D, F]; down [F, D]; biases [F], [D].
  Quantized matrices hold the same as [outputs, contracted]. N leads in
  qkv so that [N, 3, H] flattened, and split among devices, is still by heads.
  The rotated dims of q and k are in half-split order, see `rotary.py`.
  """

  norm: Norm
  qkv: Matrix
  post: Matrix
  up: Matrix
  up_bias: jax.Array
  down: Matrix
  down_bias: jax.Array


# One for each layer, or one of stacked arrays; see `layers.py`.
Layers: TypeAlias = tuple[Layer, ...] | Layer


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Weights:
  """A whole model: embedding [V, D], head [D, V], head_bias [V]."""

  embedding: jax.Array
  layers: Layers
  final_norm: Norm
  head: Matrix
  head_bias: jax.Array

  @property
  def stacked(self) -> bool:
    return layers_lib.is_stacked(self.layers)


def stack(weights: Weights) -> Weights:
  """The same model with its layers stacked."""
  layers = weights.layers
  if not isinstance(layers, tuple):
    return weights
  return dataclasses.replace(weights, layers=layers_lib.stack(layers))


def assemble(leaf: Callable[[str], Any], layers: Any) -> Weights:
  """Weights out of their leaves.

  Args:
    leaf: from a field of `variables.py` outside the layers to its array.
    layers: see `Weights`.
  """
  return Weights(
    embedding=leaf('embedding'),
    layers=layers,
    final_norm=Norm(leaf('final_norm.scale'), leaf('final_norm.bias')),
    head=leaf('head'),
    head_bias=leaf('head_bias'),
  )


def assemble_layer(leaf: Callable[[str], Any]) -> Layer:
  """A Layer out of its leaves; `leaf` as of `assemble`, for `layers.qkv`..."""
  return Layer(
    norm=Norm(leaf('layers.norm.scale'), leaf('layers.norm.bias')),
    qkv=leaf('layers.qkv'),
    post=leaf('layers.post'),
    up=leaf('layers.up'),
    up_bias=leaf('layers.up_bias'),
    down=leaf('layers.down'),
    down_bias=leaf('layers.down_bias'),
  )


def from_pax(
  variables: Mapping[str, np.ndarray],
  config: config_lib.GPTJConfig,
  dtype: str = 'float32',
  quantization: str | None = None,
  quantize_head: bool = True,
) -> Weights:
  """A whole model out of PAX variables; see `PaxReader` for arguments."""
  reader = PaxReader(variables, config, dtype, quantization, quantize_head)
  # These are the largest: they are read while there is most room for copies.
  outside = {
    row.field: reader.leaf(row.field)
    for row in variables_lib.GPTJ
    if not row.per_layer
  }
  layers = tuple(reader.layer(i) for i in range(config.num_layers))
  return assemble(outside.__getitem__, layers)


class PaxReader:
  """Makes parts of a model out of PAX variables."""

  def __init__(
    self,
    variables: Mapping[str, np.ndarray],
    config: config_lib.GPTJConfig,
    dtype: str = 'float32',
    quantization: str | None = None,
    quantize_head: bool = True,
  ):
    """Reads nothing yet.

    Args:
      variables: name -> array, names as `params.lm.embedding_lookup.emb_var`;
        any prefix is allowed. Those of the parts that are asked for suffice.
      config: sizes; every shape is checked against it.
      dtype: of the matrices, or of the embedding alone if the others are
        quantized; norms and biases stay float32.
      quantization: "int8" or "int8_weights" makes int8 of the matrices that
        activations are multiplied with, one scale per output channel, and the
        former of those activations too; see `quant.py`. A matrix that is int8
        in the checkpoint, with its scale beside it, is taken as it is. None: of
        nothing.
      quantize_head: whether the head is among these matrices.

    Raises:
      ValueError: the quantization is unknown. All methods raise it, too, for a
        variable that is missing, has another shape, is int8 where it must not
        be or lacks its scale.
    """
    if quantization not in quant.QUANTIZATIONS:
      raise ValueError(
        f'quantization is {quantization!r}; use one of {quant.QUANTIZATIONS}.'
      )
    self._variables = variables
    self._config = config
    self._dtype = dtype
    self._quantization = quantization
    self._quantize_head = quantize_head

  def layer(self, index: int) -> Layer:
    """One layer."""
    return assemble_layer(lambda field: self.leaf(field, index))

  def leaf(self, field: str, layer: int = 0) -> Matrix:
    """The array, or the quantized matrix, of one field of `variables.py`."""
    variable = variables_lib.GPTJ.by_field[field]
    if variable.is_matrix:
      return self._matrix(variable, layer)
    name, value = self._stored(variable, layer)
    if value.dtype == np.int8:
      raise ValueError(
        f'{name} is int8, but only matrices that are multiplied with may be'
        ' quantized. Quantize the float checkpoint with offline_quantize.'
      )
    value = value.astype(np.float32, copy=False)
    if variable.is_norm_scale and not self._config.ln_direct_scale:
      value = value + 1
    return jnp.asarray(value, self._dtype if value.ndim > 1 else jnp.float32)

  def _matrix(self, variable: variables_lib.Variable, layer: int) -> Matrix:
    name, value = self._stored(variable, layer)
    contracted = [variable.kept_axes.index(a) for a in variable.contracted]
    activations = None if self._quantization == 'int8' else self._dtype
    if value.dtype != np.int8:
      value = self._arranged(variable, value.astype(np.float32, copy=False))
      wanted = variable.field != 'head' or self._quantize_head
      if self._quantization is None or not wanted:
        return jnp.asarray(value, jnp.dtype(self._dtype))
      return quant.quantize(value, contracted, activations)
    if self._quantization is None:
      raise ValueError(
        f'{name} is int8: the checkpoint is quantized. Ask for quantization'
        " 'int8' or 'int8_weights', or give the float checkpoint."
      )
    scale = self._scale(variable, layer)
    return quant.from_codes(
      self._arranged(variable, value),
      self._arranged(variable, scale),
      contracted,
      activations,
    )

  def _arranged(
    self, variable: variables_lib.Variable, value: np.ndarray
  ) -> np.ndarray:
    """A matrix, or its scale, with the dims in the engine's order."""
    if variable.field == 'layers.qkv':
      # Queries and keys may share any order of their dims: their product is
      # the same, and halves are cheaper to rotate than interleaved pairs.
      c = self._config
      halves = [
        *range(0, c.rotary_dim, 2),
        *range(1, c.rotary_dim, 2),
        *range(c.rotary_dim, c.head_dim),
      ]
      value = np.concatenate([value[:2][..., halves], value[2:]])
    return value.transpose([variable.axes.index(a) for a in variable.kept_axes])

  def _stored(
    self, variable: variables_lib.Variable, layer: int
  ) -> tuple[str, np.ndarray]:
    """Whole name and array of a variable whose shape is as it should be."""
    name = variables_lib.find(self._variables, variable.below_prefix(layer))
    value = np.asarray(self._variables[name])
    shape = variable.shape(self._config)
    if variable.field == 'head_bias' and value.ndim == 1:
      # It may be longer: Sax's converter cuts the matrix to the vocabulary but
      # not the bias.
      value = value[: shape[0]]
    _check_shape(name, value.shape, shape)
    return name, value

  def _scale(self, variable: variables_lib.Variable, layer: int) -> np.ndarray:
    """The scale of an int8 matrix, with size 1 at the contracted dims."""
    suffix = variable.below_prefix(layer) + variables_lib.SCALE_SUFFIX
    name = variables_lib.find(self._variables, suffix)
    value = np.asarray(self._variables[name])
    dims = variable.contracted_dims
    shape = np.delete(variable.shape(self._config), dims).tolist()
    _check_shape(name, value.shape, tuple(shape))
    return np.expand_dims(value, dims)


def _check_shape(
  name: str, shape: tuple[int, ...], expected: tuple[int, ...]
) -> None:
  if shape != expected:
    raise ValueError(
      f"{name} has shape {shape}; the model's sizes make it {expected}."
    )
