"""Builds praxis LanguageModels with the variables of our checkpoints.

praxis lacks two features of GPT-J, which this module adds. Attention and
feed-forward both read the output of one layer norm. The rotation applies to
adjacent pairs of the first dims of a head, instead of its two halves.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

import jax

from saxml_ext.engine import architecture as architecture_lib
from saxml_ext.engine import config as config_lib
from saxml_ext.pax import compat

compat.install_praxis()  # Before the first import of praxis.

from praxis import pax_fiddle
from praxis import py_utils
from praxis.layers import activations
from praxis.layers import attentions
from praxis.layers import embedding_softmax
from praxis.layers import models
from praxis.layers import multi_query_attention
from praxis.layers import normalizations
from praxis.layers import transformer_models
from praxis.layers import transformers

Config: TypeAlias = pax_fiddle.Config


def _norm(config: config_lib.ModelConfig) -> Config:
  """Returns a norm of the model."""
  has_bias = config.architecture.norm == architecture_lib.LAYER_NORM
  return Config(
    normalizations.LayerNorm if has_bias else normalizations.RmsNorm,
    direct_scale=config.ln_direct_scale,
    epsilon=config.ln_epsilon,
  )


def _language_model(
  config: config_lib.ModelConfig, layer: Config, repeated: bool, **parts: object
) -> Config:
  """Returns a LanguageModel, in float32.

  Args:
    config: The sizes of the model.
    layer: The config of any layer.
    repeated: True if the layers share their variables.
    **parts: The other fields of the model's TransformerLm.
  """
  c = config
  stack = Config(
    transformers.StackedTransformer,
    num_layers=1 if repeated else c.num_layers,
    num_heads=c.num_heads,
    dim_per_head=c.head_dim,
    model_dims=c.model_dim,
    hidden_dims=c.hidden_dim,
    transformer_layer_params_tpl=layer,
  )
  if repeated:
    stack = Config(
      transformers.StackedTransformerRepeated, block=stack, x_times=c.num_layers
    )
  lm = Config(
    transformer_models.TransformerLm,
    model_dims=c.model_dim,
    vocab_size=c.vocab_size,
    stacked_transformer_tpl=stack,
    final_ln_tpl=_norm(config),
    **parts,
  )
  return Config(models.LanguageModel, name='lm', lm_tpl=lm)


class PairwiseRotary(embedding_softmax.RotaryPositionalEmbedding):
  """Rotates pairs (0, 1), (2, 3), ... of the first `rotary_dim` dims."""

  rotary_dim: int = 0

  def setup(self) -> None:
    super().setup()
    self.create_child(
      'halves',
      Config(
        embedding_softmax.RotaryPositionalEmbedding,
        embedding_dims=self.rotary_dim,
        max_timescale=self.max_timescale,
        cast_as_fprop_dtype=self.cast_as_fprop_dtype,
      ),
    )

  def __call__(
    self, inputs: jax.Array, position: jax.Array | None = None
  ) -> jax.Array:
    """Rotates heads by their positions.

    Args:
      inputs: The heads [B, T, N, H].
      position: The positions [B, T]; None means 0, 1, ...
    """
    outer, dim = inputs.shape[:-1], self.rotary_dim
    pairs = inputs[..., :dim].reshape(*outer, dim // 2, 2)
    halves = pairs.swapaxes(-1, -2).reshape(*outer, dim)
    halves = self.halves(halves, position).reshape(*outer, 2, dim // 2)
    turned = halves.swapaxes(-1, -2).reshape(*outer, dim)
    return jax.numpy.concatenate([turned, inputs[..., dim:]], -1)


class ParallelTransformer(transformers.Transformer):
  """A layer in which attention and feed-forward both read one layer norm.

  The feed-forward layer's own norm and skip connection must be off.
  """

  def __call__(
    self,
    inputs: jax.Array,
    paddings: jax.Array,
    attention_mask: jax.Array,
    cross_inputs: jax.Array | None = None,
    cross_attention_mask: jax.Array | None = None,
    segment_pos: jax.Array | None = None,
    segment_ids: jax.Array | None = None,
  ) -> tuple[jax.Array, py_utils.NestedMap]:
    """Applies the layer like praxis' Transformer, without cross attention."""
    normal = self.layer_norm(inputs)
    mixed, probabilities = self.self_attention(
      normal,
      normal,
      normal,
      atten_mask=attention_mask,
      query_segment_pos=segment_pos,
      key_segment_pos=segment_pos,
    )
    outputs = inputs + mixed + self.ff_layer(normal, paddings=paddings)
    return outputs, py_utils.NestedMap(self_atten=probabilities)

  def extend_step(
    self,
    inputs: jax.Array,
    *,
    time_step: jax.Array,
    segment_pos: jax.Array | None = None,
    attention_mask: jax.Array,
    cross_attention_mask: jax.Array | None = None,
  ) -> jax.Array:
    """Computes one step like praxis' Transformer, without cross attention."""
    normal = self.layer_norm(inputs)
    mixed = self.self_attention.extend_step(
      normal,
      atten_mask=attention_mask,
      time_step=time_step,
      segment_pos=segment_pos,
    )
    fed = self.ff_layer.extend_step(normal, time_step=time_step)
    return inputs + mixed + fed


def gptj(config: config_lib.ModelConfig, repeated: bool = False) -> Config:
  """Returns a GPT-J of these sizes, in float32.

  Args:
    config: The sizes of the model.
    repeated: True if the layers share their variables.
  """
  attention = Config(
    attentions.DotProductAttention,
    combine_qkv=True,
    use_bias=False,
    internal_enable_per_dim_scale=False,
    scale_query_by_dim_per_head=True,
    use_rotary_position_emb=True,
    consolidate_rope_key_state=True,
    rotary_position_emb_tpl=Config(
      PairwiseRotary, rotary_dim=config.rotary_dim
    ),
  )
  feed_forward = Config(
    transformers.TransformerFeedForward,
    activation_tpl=Config(activations.GELU, approximate=True),
    ln_tpl=Config(normalizations.IdentityNorm),
    add_skip_connection=False,
  )
  layer = Config(
    ParallelTransformer,
    ln_tpl=_norm(config),
    tr_atten_tpl=attention,
    tr_fflayer_tpl=feed_forward,
  )
  return _language_model(
    config,
    layer,
    repeated,
    position_emb_tpl=None,
    separate_embedding_tpl=Config(embedding_softmax.Embedding),
    softmax_tpl=Config(embedding_softmax.FullSoftmax),
  )


def llama(config: config_lib.ModelConfig, repeated: bool = False) -> Config:
  """Returns a Llama of these sizes, in float32.

  Args:
    config: The sizes of the model.
    repeated: True if the layers share their variables.

  Raises:
    ValueError: Rotary positions are scaled, which praxis cannot compute.
  """
  if config.rotary_scaling:
    raise ValueError(
      f'{config.rotary_scaling}: praxis has no scaled rotary positions. Use a'
      ' Llama before 3.1.'
    )
  rotation: dict[str, object] = dict(
    use_bias=False,
    use_rotary_position_emb=True,
    consolidate_rope_key_state=True,
    rotary_position_emb_tpl=Config(
      PairwiseRotary,
      rotary_dim=config.rotary_dim,
      max_timescale=config.rotary_base,
    ),
  )
  if config.group > 1:
    attention = Config(
      multi_query_attention.MultiQueryDotProductAttention,
      num_kv_heads=config.kv_heads,
      **rotation,
    )
  else:
    attention = Config(
      attentions.DotProductAttention,
      combine_qkv=True,
      internal_enable_per_dim_scale=False,
      **rotation,
    )
  layer = Config(
    transformers.Transformer,
    ln_tpl=_norm(config),
    tr_atten_tpl=attention,
    tr_fflayer_tpl=Config(
      transformers.TransformerFeedForward,
      has_bias=False,
      use_gated_activation=True,
      activation_tpl=Config(activations.SiLU),
      ln_tpl=_norm(config),
    ),
  )
  head = Config(embedding_softmax.FullSoftmax)
  head.feed_forward_tpl.has_bias = False
  return _language_model(
    config,
    layer,
    repeated,
    position_emb_tpl=None,
    separate_embedding_tpl=Config(embedding_softmax.Embedding),
    softmax_tpl=head,
  )


def lm_cloud(config: config_lib.ModelConfig, repeated: bool = False) -> Config:
  """Returns an LmCloudSpmd of these sizes, in float32.

  paxml's own experiments (paxml/tasks/lm/params/lm_cloud.py) have fixed sizes
  and also configure training. This function builds the computation only.

  Args:
    config: The sizes, for the architecture LM_CLOUD or one with other caps.
    repeated: True if the layers share their variables.
  """
  architecture = config.architecture
  layer = Config(
    transformers.Transformer,
    ln_tpl=_norm(config),
    tr_atten_tpl=Config(
      attentions.DotProductAttention,
      combine_qkv=True,
      use_bias=False,
      atten_logit_cap=architecture.attention_cap or 0.0,
    ),
    tr_fflayer_tpl=Config(
      transformers.TransformerFeedForward,
      activation_tpl=Config(activations.GELU, approximate=True),
      ln_tpl=_norm(config),
    ),
  )
  return _language_model(
    config,
    layer,
    repeated,
    softmax_tpl=Config(
      embedding_softmax.SharedEmbeddingSoftmax,
      scale_sqrt_depth=architecture.scaled_embedding,
      soft_cap_logits=architecture.logit_cap or 0.0,
    ),
  )


# The functions that build the models of the families, by name.
MODELS: Mapping[str, Callable[[config_lib.ModelConfig, bool], Config]] = {
  'gptj': gptj,
  'llama': llama,
  'lm_cloud': lm_cloud,
}
