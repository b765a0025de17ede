"""Shapes of a model's weights, for programs that are compiled without them."""

import jax
import jax.numpy as jnp

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import variables
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.numerics import quant


def stacked(
  config: config_lib.GPTJConfig,
  dtype: str,
  quantization: str | None,
  quantize_head: bool = True,
) -> weights_lib.Weights:
  """What `from_pax`, then `stack`, would give, as jax.ShapeDtypeStruct.

  Args:
    config: sizes.
    dtype: as of `weights.PaxReader`.
    quantization: as of `weights.PaxReader`.
    quantize_head: as of `weights.PaxReader`.
  """
  sizes = variables.axis_sizes(config)

  def leaf(field: str) -> weights_lib.Matrix:
    row = variables.GPTJ.by_field[field]

    def struct(axes: tuple[str, ...], dtype: str) -> jax.ShapeDtypeStruct:
      if row.per_layer:
        axes = ('layers', *axes)
      shape = tuple(sizes[axis] for axis in axes)
      return jax.ShapeDtypeStruct(shape, jnp.dtype(dtype))

    quantized = row.is_matrix and (field != 'head' or quantize_head)
    if not quantized or quantization is None:
      return struct(row.kept_axes, dtype if len(row.axes) > 1 else 'float32')
    return quant.QuantizedArray(
      struct(row.outputs + row.contracted, 'int8'),
      struct(row.outputs, 'float32'),
      dtype if quantization == 'int8_weights' else None,
    )

  return weights_lib.assemble(leaf, weights_lib.assemble_layer(leaf))
