"""GPT-J one layer at a time: no more than one is in memory.

The products, attention and rotary embedding are the engine's, and so are the
results; what this adds is that hidden states wait between layers, and that the
inputs of each matrix can be seen.
"""

from collections.abc import Mapping
import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from converters import quantization_texts
from converters import quantized_matrices
from saxml_ext.engine import attention
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import einsum as einsum_lib
from saxml_ext.engine import quant
from saxml_ext.engine import rotary
from saxml_ext.engine import weights as weights_lib
from saxml_ext.pax import checkpoint
from saxml_ext.pax import errors
from saxml_ext.pax import layout

_HEAD = f'{layout.PREFIX}.softmax.logits_ffn'
# Positions whose logits are computed together: 100 MB at 50,400 tokens.
_POSITIONS = 512


class Inputs(NamedTuple):
  """What the matrices of a layer are multiplied with, float32.

  norm [B, T, D]: of combined_qkv and ffn_layer1; mixed [B, T, N * H]: of post;
  hidden [B, T, F]: of ffn_layer2.
  """

  norm: jax.Array
  mixed: jax.Array
  hidden: jax.Array


@functools.partial(jax.jit, static_argnums=1)
def run_layer(
    layer: weights_lib.Layer, config: config_lib.GPTJConfig, x: jax.Array
) -> tuple[jax.Array, Inputs]:
  """A layer's result [B, T, D] for hidden states x [B, T, D], and its inputs.

  Sequences are padded on the right.
  """
  einsum = einsum_lib.einsum
  sin, cos = rotary.table(x.shape[1], config.rotary_dim)
  h = _norm(x, layer.norm, config)
  q, k, v = einsum('btd,nchd->cbnth', h, layer.qkv)
  keys = rotary.rotate(k, sin, cos).transpose(0, 1, 3, 2)
  mixed = attention.attend_causal(rotary.rotate(q, sin, cos), keys, v)
  hidden = einsum('btd,df->btf', h, layer.up) + layer.up_bias
  hidden = jax.nn.gelu(hidden, approximate=True)
  added = einsum('bnth,nhd->btd', mixed, layer.post)
  added += einsum('btf,fd->btd', hidden, layer.down) + layer.down_bias
  by_token = mixed.transpose(0, 2, 1, 3).reshape(*x.shape[:2], -1)
  return x + added, Inputs(h, by_token, hidden)


def _norm(x, norm: weights_lib.Norm, config) -> jax.Array:
  centred = x - x.mean(-1, keepdims=True)
  variance = jnp.square(centred).mean(-1, keepdims=True)
  return centred * jax.lax.rsqrt(variance + config.ln_epsilon) * norm.scale + (
      norm.bias
  )


@functools.partial(jax.jit, static_argnums=4)
def _head(x, norm, head, bias, config) -> jax.Array:
  return einsum_lib.einsum('pd,dv->pv', _norm(x, norm, config), head) + bias


@dataclasses.dataclass(frozen=True)
class LayeredModel:
  """A GPT-J on disk.

  Attributes:
    reader: its checkpoint, in float or int8.
    config: its sizes.
    quantization: as of `weights.from_pax`; None for a float checkpoint.
  """

  reader: checkpoint.Reader
  config: config_lib.GPTJConfig
  quantization: str | None = None

  def embed(self, texts: quantization_texts.Texts) -> list[np.ndarray]:
    """Hidden states [B, T, D] float32 of each batch before the first layer."""
    name = f'{layout.PREFIX}.embedding_lookup.emb_var'
    table = self.reader.read(name)
    return [table[batch.tokens].astype(np.float32) for batch in texts.batches]

  def read_layer(self, index: int) -> weights_lib.Layer:
    """Reads a layer."""
    prefix = quantized_matrices.layer_prefix(index)
    return self.layer(
        {
            name: self.reader.read(name)
            for name in self.reader.specs
            if name.startswith(prefix)
        },
        index,
    )

  def layer(
      self, variables: Mapping[str, np.ndarray], index: int
  ) -> weights_lib.Layer:
    """A layer made from its variables.

    Raises:
      errors.CheckpointError: they are not those of such a layer.
    """
    prefix = quantized_matrices.layer_prefix(index)
    first = quantized_matrices.layer_prefix(0)
    # The engine makes whole models: here one of one layer and one token.
    dim = self.config.model_dim
    zeros = functools.partial(np.zeros, dtype=np.float32)
    alone = {
        first + name.removeprefix(prefix): value
        for name, value in variables.items()
    } | {
        'embedding_lookup.emb_var': zeros((1, dim)),
        'final_ln.scale': zeros(dim),
        'final_ln.bias': zeros(dim),
        'softmax.logits_ffn.linear.w': zeros((dim, 1)),
        'softmax.logits_ffn.bias.b': zeros(1),
    }
    config = dataclasses.replace(self.config, num_layers=1, vocab_size=1)
    try:
      weights = weights_lib.from_pax(
          alone, config, quantization=self.quantization, quantize_head=False
      )
    except ValueError as e:
      raise errors.CheckpointError(f'{self.reader.step_dir}: {e}') from e
    return weights.layers[0]

  def logits(self, x: np.ndarray) -> np.ndarray:
    """Logits [P, V] float32 of hidden states [P, D] after the last layer."""
    read = self.reader.read
    norm = weights_lib.Norm(
        *(
            jnp.asarray(read(f'{layout.PREFIX}.final_ln.{part}'), jnp.float32)
            for part in ('scale', 'bias')
        )
    )
    head = read(f'{_HEAD}.linear.w')
    if head.dtype == np.int8:
      scale = read(f'{_HEAD}.linear.w_quantized_scale')
      dtype = None if self.quantization == 'int8' else 'float32'
      head = quant.from_codes(head, scale[None], (0,), dtype)
    else:
      head = jnp.asarray(head, jnp.float32)
    bias = read(f'{_HEAD}.bias.b').astype(np.float32)[: self.config.vocab_size]

    parts = range(0, len(x), _POSITIONS)
    return np.concatenate(
        [
            _head(x[i : i + _POSITIONS], norm, head, bias, self.config)
            for i in parts
        ]
    )
