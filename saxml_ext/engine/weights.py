"""Weights as the model reads them, made from PAX variables."""

from collections.abc import Callable, Mapping
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import layers as layers_lib
from saxml_ext.engine import quant

# What praxis calls the scale of a variable.
_SCALE = "_quantized_scale"

# A matrix of the model; see `einsum.py`, which understands both.
Matrix = jax.Array | quant.QuantizedArray


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
  Quantized matrices hold the same with the contracted dims last. N leads in
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


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Weights:
  """A whole model: embedding [V, D], head [D, V], head_bias [V].

  layers: a tuple, or one Layer of stacked arrays; see `layers.py`.
  """

  embedding: jax.Array
  layers: tuple[Layer, ...] | Layer
  final_norm: Norm
  head: Matrix
  head_bias: jax.Array

  @property
  def stacked(self) -> bool:
    return layers_lib.is_stacked(self.layers)


def stack(weights: Weights) -> Weights:
  """The same model with its layers stacked."""
  if weights.stacked:
    return weights
  return dataclasses.replace(weights, layers=layers_lib.stack(weights.layers))


def from_pax(
    variables: Mapping[str, np.ndarray],
    config: config_lib.GPTJConfig,
    dtype: str = "float32",
    quantization: str | None = None,
    quantize_head: bool = True,
) -> Weights:
  """Takes a GPT-J out of PAX variables.

  Args:
    variables: name -> array, names as `params.lm.embedding_lookup.emb_var`; any
      prefix is allowed.
    config: sizes; every shape is checked against it.
    dtype: of the matrices, or of the embedding alone if the others are
      quantized; norms and biases stay float32.
    quantization: "int8" or "int8_weights" makes int8 of the matrices that
      activations are multiplied with, one scale per output channel, and the
      former of those activations too; see `quant.py`. A matrix that is int8 in
      the checkpoint, with its scale beside it, is taken as it is. None: of
      nothing.
    quantize_head: whether the head is among these matrices.

  Raises:
    ValueError: a variable is missing, has another shape, is int8 where it
      should not be or lacks its scale; or the quantization is unknown.
  """
  if quantization not in quant.QUANTIZATIONS:
    raise ValueError(
        f"quantization is {quantization!r}; use one of {quant.QUANTIZATIONS}."
    )
  activations = None if quantization == "int8" else dtype
  c = config
  split = np.concatenate(
      [
          np.arange(0, c.rotary_dim, 2),
          np.arange(1, c.rotary_dim, 2),
          np.arange(c.rotary_dim, c.head_dim),
      ]
  )

  def stored(suffix: str, *shape: int) -> tuple[str, np.ndarray]:
    name = config_lib.find(variables, suffix)
    value = np.asarray(variables[name])
    if value.shape != shape:
      raise ValueError(
          f"{name} has shape {value.shape}; the model's sizes make it {shape}."
      )
    return name, value

  def read(suffix: str, *shape: int) -> np.ndarray:
    name, value = stored(suffix, *shape)
    if value.dtype == np.int8:
      raise ValueError(f"{name} is int8; only matrices of products may be.")
    return value.astype(np.float32)

  def matrix(
      suffix: str,
      shape: tuple[int, ...],
      summed: tuple[int, ...],
      arrange: Callable[[np.ndarray], np.ndarray] = lambda x: x,
      contracted: tuple[int, ...] | None = None,
      quantized: bool = quantization is not None,
  ) -> Matrix:
    """A matrix whose dims `summed` are `contracted` once it is arranged."""
    contracted = summed if contracted is None else contracted
    name, value = stored(suffix, *shape)
    if value.dtype != np.int8:
      value = arrange(value.astype(np.float32))
      if not quantized:
        return jnp.asarray(value, jnp.dtype(dtype))
      return quant.quantize(value, contracted, activations)
    if quantization is None:
      raise ValueError(
          f"{name} is int8: the checkpoint is quantized. Ask for quantization"
          " 'int8' or 'int8_weights', or give the float checkpoint."
      )
    _, scale = stored(suffix + _SCALE, *np.delete(shape, summed).tolist())
    scale = arrange(np.expand_dims(scale, summed))
    return quant.from_codes(arrange(value), scale, contracted, activations)

  def norm(prefix: str) -> Norm:
    scale = read(f"{prefix}.scale", c.model_dim)
    if not c.ln_direct_scale:
      scale = scale + 1
    return Norm(
        jnp.asarray(scale), jnp.asarray(read(f"{prefix}.bias", c.model_dim))
    )

  def layer(i: int) -> Layer:
    x = f"x_layers_{i}"
    d, n, h, f = c.model_dim, c.num_heads, c.head_dim, c.hidden_dim
    ffn = f"{x}.ff_layer.ffn_layer"

    def arrange(qkv: np.ndarray) -> np.ndarray:
      # Queries and keys may share any order of their dims: their product is
      # the same, and halves are cheaper to rotate than interleaved pairs.
      halves = np.concatenate([qkv[:2][..., split], qkv[2:]])
      return halves.transpose(2, 0, 3, 1)

    return Layer(
        norm=norm(f"{x}.layer_norm"),
        qkv=matrix(
            f"{x}.self_attention.combined_qkv.w",
            (3, d, n, h),
            (1,),
            arrange,
            (3,),
        ),
        post=matrix(
            f"{x}.self_attention.post.w",
            (d, n, h),
            (1, 2),
            lambda post: post.transpose(1, 2, 0),
            (0, 1),
        ),
        up=matrix(f"{ffn}1.linear.w", (d, f), (0,)),
        up_bias=jnp.asarray(read(f"{ffn}1.bias.b", f)),
        down=matrix(f"{ffn}2.linear.w", (f, d), (0,)),
        down_bias=jnp.asarray(read(f"{ffn}2.bias.b", d)),
    )

  # The bias may be longer: Sax's converter cuts the matrix to the vocabulary
  # but not the bias.
  bias_name = config_lib.find(variables, "softmax.logits_ffn.bias.b")
  bias = np.asarray(variables[bias_name]).astype(np.float32)
  if bias.ndim != 1 or bias.shape[0] < c.vocab_size:
    raise ValueError(
        f"{bias_name} has shape {bias.shape}; at least [{c.vocab_size}] needed."
    )
  return Weights(
      # Looked up, not multiplied.
      embedding=jnp.asarray(
          read("embedding_lookup.emb_var", c.vocab_size, c.model_dim),
          jnp.dtype(dtype),
      ),
      layers=tuple(layer(i) for i in range(c.num_layers)),
      final_norm=norm("final_ln"),
      head=matrix(
          "softmax.logits_ffn.linear.w",
          (c.model_dim, c.vocab_size),
          (0,),
          quantized=quantize_head and quantization is not None,
      ),
      head_bias=jnp.asarray(bias[: c.vocab_size]),
  )
