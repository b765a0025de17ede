"""Shapes of a model's weights, for programs that are compiled without them."""

import jax
import jax.numpy as jnp

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import quant
from saxml_ext.engine import sharding
from saxml_ext.engine import weights as weights_lib


def stacked(
    config: config_lib.GPTJConfig, dtype: str, quantization: str | None
) -> weights_lib.Weights:
  """What `from_pax`, then `stack`, would give, as jax.ShapeDtypeStruct.

  Args:
    config: sizes.
    dtype: as of `weights.from_pax`.
    quantization: as of `weights.from_pax`.
  """
  c = config
  sizes = {
      "layers": c.num_layers,
      "embed": c.model_dim,
      "heads": c.num_heads,
      "head_dim": c.head_dim,
      "three": 3,
      "hidden": c.hidden_dim,
      "vocab": c.vocab_size,
  }

  def struct(axes: tuple[str, ...], dtype: str) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct([sizes[a] for a in axes], jnp.dtype(dtype))

  def vector(field: str, *leading: str) -> jax.ShapeDtypeStruct:
    return struct((*leading, *sharding.WEIGHTS[field]), "float32")

  def matrix(field: str, *leading: str) -> weights_lib.Matrix:
    axes = sharding.WEIGHTS[field]
    if quantization is None:
      return struct((*leading, *axes), dtype)
    last = sharding.CONTRACTED[field]
    outputs = (*leading, *[a for a in axes if a not in last])
    return quant.QuantizedArray(
        struct(outputs + last, "int8"),
        struct(outputs, "float32"),
        dtype if quantization == "int8_weights" else None,
    )

  def norm(field: str, *leading: str) -> weights_lib.Norm:
    return weights_lib.Norm(vector(field, *leading), vector(field, *leading))

  return weights_lib.Weights(
      embedding=struct(sharding.WEIGHTS["embedding"], dtype),
      layers=weights_lib.Layer(
          norm=norm("norm", "layers"),
          qkv=matrix("qkv", "layers"),
          post=matrix("post", "layers"),
          up=matrix("up", "layers"),
          up_bias=vector("up_bias", "layers"),
          down=matrix("down", "layers"),
          down_bias=vector("down_bias", "layers"),
      ),
      final_norm=norm("final_norm"),
      head=matrix("head"),
      head_bias=vector("head_bias"),
  )
