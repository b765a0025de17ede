"""Computes shapes of a model's weights, to compile programs without them."""

from collections.abc import Sequence
import dataclasses
import functools
import math

import jax
import jax.numpy as jnp

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import variables
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.numerics import int4
from saxml_ext.engine.numerics import quant


def shapes(
  config: config_lib.ModelConfig,
  dtype: str,
  quantization: str | None,
  quantize_head: bool = True,
  stacked: bool = False,
) -> weights_lib.Weights:
  """Returns the result of `weights.from_pax` as jax.ShapeDtypeStruct.

  Args:
    config: The configuration of the model, which gives the sizes.
    dtype: The dtype of float weights, as in `weights.PaxReader`.
    quantization: The quantization of matrices, as in `weights.PaxReader`.
    quantize_head: True if the head is quantized too.
    stacked: True for one array of all layers.
  """
  leaf = _Shapes(config, dtype, quantization, quantize_head).leaf
  layer = weights_lib.assemble_layer(
    functools.partial(leaf, leading=('layers',) if stacked else ())
  )
  layers = layer if stacked else (layer,) * config.num_layers
  return weights_lib.assemble(leaf, layers)


@dataclasses.dataclass(frozen=True)
class _Shapes:
  """The shapes of a model's arrays, with the arguments of `shapes`."""

  config: config_lib.ModelConfig
  dtype: str
  quantization: str | None
  quantize_head: bool

  def leaf(
    self, field: str, leading: tuple[str, ...] = ()
  ) -> weights_lib.Matrix | None:
    """Returns the array of a field of `variables.py`, after `leading` axes.

    The result is None if models of this family do not have the field.
    """
    table = variables.table_of(self.config.architecture).by_field
    row = table.get(field)
    if row is None and field == 'head_bias':  # Zeros.
      row = variables.BY_FIELD[field]
    if row is None:
      return None
    sizes = variables.axis_sizes(self.config)

    def dims(axes: tuple[str, ...]) -> tuple[int, ...]:
      return tuple(sizes[axis] for axis in axes)

    def struct(shape: Sequence[int], dtype: str) -> jax.ShapeDtypeStruct:
      return jax.ShapeDtypeStruct((*dims(leading), *shape), jnp.dtype(dtype))

    quantized = row.is_matrix and self.quantization is not None
    if not quantized or (field == 'head' and not self.quantize_head):
      float_type = self.dtype if len(row.axes) > 1 else 'float32'
      return struct(dims(row.kept_axes), float_type)
    outputs = dims(row.outputs)
    shape = math.prod(outputs), math.prod(dims(row.contracted))
    activations = quant.activation_format(
      self.quantization, self.dtype, field == 'head'
    )
    values = struct(shape, quant.CODES.get(activations, 'int8'))
    if activations == quant.INT4:
      values = struct(int4.packed_shape(*shape), 'uint8')
    return quant.QuantizedArray(values, struct(outputs, 'float32'), activations)
