"""Heads that a mesh does not divide: others of zeros are added to them.

Published meshes are of this kind: the 24 heads of LmCloudSpmd2B on 16 or 32
chips, the 96 of 175B on 64. Where queries share keys, heads of keys are added
with the queries that they have. A head of zeros has values of zeros, whatever it
attends to, and its rows of `post` are zeros too: no result changes, not even
the scales of int8. It takes as much memory and time as another one.
"""

from collections.abc import Callable
import dataclasses

import jax

from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.numerics import quant

# Called with an array, a dim, and by how much zeros make that longer.
Fill = Callable[[jax.Array, int, int], jax.Array]


def padded(heads: int, parts: int) -> int:
  """How many heads there are once they are split evenly."""
  return heads + -heads % parts


def pad(layer: weights_lib.Layer, parts: int, fill: Fill) -> weights_lib.Layer:
  """A layer with its heads padded, or all layers in their stacked form."""
  qkv, post = layer.qkv, layer.post
  if isinstance(qkv, quant.QuantizedArray):
    *leading, heads, rows, width = qkv.scale.shape
  else:
    *leading, heads, rows, width, _ = qkv.shape
  missing = padded(heads, parts) - heads
  if not missing:
    return layer
  at = len(leading)
  if isinstance(qkv, quant.QuantizedArray):
    qkv = dataclasses.replace(
      qkv,
      values=fill(qkv.values, at, missing * rows * width),
      scale=fill(qkv.scale, at, missing),
    )
  else:
    qkv = fill(qkv, at, missing)
  if isinstance(post, quant.QuantizedArray):
    values = fill(post.values, at + 1, missing * (rows - 2) * width)
    post = dataclasses.replace(post, values=values)
  else:
    post = fill(post, at, missing * (rows - 2))
  bias = layer.qkv_bias
  if bias is not None:
    bias = fill(bias, at, missing)
  return dataclasses.replace(layer, qkv=qkv, qkv_bias=bias, post=post)
