"""The operations of a layer that XLA splits among devices, if at all.

Letters in shapes as in `model.py`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from saxml_ext.engine import architecture as architecture_lib
from saxml_ext.engine import components
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.numerics import einsum as einsum_lib

einsum = einsum_lib.einsum


class Whole(NamedTuple):
  """The operations of a layer on whole arrays.

  `tensor_parallel.Rows` has the same ones, which are split by rows.
  """

  config: config_lib.ModelConfig

  def split(self, x: jax.Array) -> jax.Array:
    """Returns the form that the layers pass on of x [A, R, D]: the same."""
    return x

  join = split

  def project(
    self, layer: weights_lib.Layer, x: jax.Array
  ) -> tuple[jax.Array, jax.Array]:
    """Returns x normalized, and its queries, keys and values for `heads`."""
    h = components.normalize(x, layer.norm, self.config)
    qkv = einsum('btd,nchd->cbnth', h, layer.qkv)
    if layer.qkv_bias is None:
      return h, qkv
    return h, qkv + layer.qkv_bias.transpose(1, 0, 2)[:, None, :, None]

  def heads(self, qkv: jax.Array) -> jax.Array:
    """Returns queries, keys and values as [G + 2, A, N, R, H]: the same."""
    return qkv

  def only(
    self,
    layer: weights_lib.Layer,
    x: jax.Array,
    h: jax.Array,
    mixed: jax.Array,
    at: jax.Array,
  ) -> tuple['Whole', jax.Array, jax.Array, jax.Array]:
    """Returns the operations and operands to finish one token of each prompt.

    Args:
      layer: Its weights.
      x: [B, T, D], the residual.
      h: [B, T, D], as of `project`.
      mixed: [B, N * G, 1, H]: that token's alone.
      at: [B, 1, 1] int32, the index of the token.
    """
    del layer
    x, h = (jnp.take_along_axis(each, at, 1) for each in (x, h))
    return self, x, h, mixed

  def finish(
    self,
    layer: weights_lib.Layer,
    x: jax.Array,
    h: jax.Array,
    mixed: jax.Array,
  ) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Adds attention and the feed-forward layer to the residual `x`.

    If both read `h`, their products are added first: where devices have parts
    of both, those are summed by one all-reduce.

    Returns:
      The layer's result, and what `up` and `down` were multiplied with.
    """
    residual = self.config.architecture.residual
    attended = einsum('bnth,nhd->btd', mixed, layer.post)
    attended = _biased(attended, layer.post_bias)
    if residual == architecture_lib.SEQUENTIAL:
      x = x + attended
    if layer.ff_norm is not None:
      h = components.normalize(x, layer.ff_norm, self.config)
    fed = _biased(einsum('...d,df->...f', h, layer.up), layer.up_bias)
    hidden = components.activate(fed, self.config)
    down = einsum('...f,fd->...d', hidden, layer.down)
    if residual != architecture_lib.SEQUENTIAL:
      down = attended + down
    return x + _biased(down, layer.down_bias), h, hidden


def _biased(x: jax.Array, bias: jax.Array | None) -> jax.Array:
  return x if bias is None else x + bias
