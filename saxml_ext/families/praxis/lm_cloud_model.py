"""LmCloudSpmd as a praxis LanguageModel, with the variables of a checkpoint.

paxml's own experiments (paxml/tasks/lm/params/lm_cloud.py) configure training,
and fix their sizes; this is what of them computes, for sizes that are given.
"""

from typing import TypeAlias

from saxml_ext.engine import config as config_lib
from saxml_ext.pax.compat import praxis_compat

praxis_compat.install()  # Before the first import of praxis.

from praxis import pax_fiddle
from praxis.layers import activations
from praxis.layers import attentions
from praxis.layers import embedding_softmax
from praxis.layers import models
from praxis.layers import normalizations
from praxis.layers import transformer_models
from praxis.layers import transformers

Config: TypeAlias = pax_fiddle.Config


def language_model(
  config: config_lib.ModelConfig, repeated: bool = False
) -> Config:
  """Configuration of a LanguageModel of these sizes, in float32.

  Args:
    config: sizes, of the architecture LM_CLOUD or one with other caps.
    repeated: whether the layers share their variables.
  """
  c, architecture = config, config.architecture
  norm = Config(
    normalizations.LayerNorm,
    direct_scale=c.ln_direct_scale,
    epsilon=c.ln_epsilon,
  )
  layer = Config(
    transformers.Transformer,
    ln_tpl=norm.clone(),
    tr_atten_tpl=Config(
      attentions.DotProductAttention,
      combine_qkv=True,
      use_bias=False,
      atten_logit_cap=architecture.attention_cap or 0.0,
    ),
    tr_fflayer_tpl=Config(
      transformers.TransformerFeedForward,
      activation_tpl=Config(activations.GELU, approximate=True),
      ln_tpl=norm.clone(),
    ),
  )
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
      transformers.StackedTransformerRepeated,
      block=stack,
      x_times=c.num_layers,
    )
  lm = Config(
    transformer_models.TransformerLm,
    model_dims=c.model_dim,
    vocab_size=c.vocab_size,
    stacked_transformer_tpl=stack,
    softmax_tpl=Config(
      embedding_softmax.SharedEmbeddingSoftmax,
      scale_sqrt_depth=architecture.scaled_embedding,
      soft_cap_logits=architecture.logit_cap or 0.0,
    ),
    final_ln_tpl=norm.clone(),
  )
  return Config(models.LanguageModel, name='lm_cloud', lm_tpl=lm)
