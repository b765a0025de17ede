"""Shapes of a model's weights, for programs that are compiled without them."""

from collections.abc import Sequence
import math

import jax
import jax.numpy as jnp

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import variables
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.numerics import quant


def stacked(
  config: config_lib.GPTJConfig, dtype: str, quantization: str | None
) -> weights_lib.Weights:
  """What `from_pax`, then `stack`, would give, as jax.ShapeDtypeStruct.

  Args:
    config: sizes.
    dtype: as of `weights.PaxReader`.
    quantization: as of `weights.PaxReader`.
  """
  sizes = variables.axis_sizes(config)

  def leaf(field: str) -> weights_lib.Matrix:
    row = variables.GPTJ.by_field[field]

    def struct(shape: Sequence[int], dtype: str) -> jax.ShapeDtypeStruct:
      if row.per_layer:
        shape = (sizes['layers'], *shape)
      return jax.ShapeDtypeStruct(tuple(shape), jnp.dtype(dtype))

    def of(axes: tuple[str, ...]) -> list[int]:
      return [sizes[axis] for axis in axes]

    if not row.is_matrix or quantization is None:
      kept = of(row.kept_axes)
      return struct(kept, dtype if len(row.axes) > 1 else 'float32')
    outputs = of(row.outputs)
    return quant.QuantizedArray(
      struct((math.prod(outputs), math.prod(of(row.contracted))), 'int8'),
      struct(outputs, 'float32'),
      dtype if quantization == 'int8_weights' else None,
    )

  return weights_lib.assemble(leaf, weights_lib.assemble_layer(leaf))
