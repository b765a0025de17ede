"""Makes praxis LanguageModels of layers that all families share."""

from typing import TypeAlias

from saxml_ext.engine import config as config_lib
from saxml_ext.pax import compat

compat.install_praxis()  # Before the first import of praxis.

from praxis import pax_fiddle
from praxis.layers import models
from praxis.layers import normalizations
from praxis.layers import transformer_models
from praxis.layers import transformers

Config: TypeAlias = pax_fiddle.Config


def norm(config: config_lib.ModelConfig) -> Config:
  """Returns a layer norm of the model."""
  return Config(
    normalizations.LayerNorm,
    direct_scale=config.ln_direct_scale,
    epsilon=config.ln_epsilon,
  )


def language_model(
  config: config_lib.ModelConfig, layer: Config, repeated: bool, **parts: object
) -> Config:
  """Returns a LanguageModel, in float32.

  Args:
    config: The sizes of the model.
    layer: Any of its layers.
    repeated: True if the layers share their variables.
    **parts: Further fields of its TransformerLm.
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
      transformers.StackedTransformerRepeated,
      block=stack,
      x_times=c.num_layers,
    )
  lm = Config(
    transformer_models.TransformerLm,
    model_dims=c.model_dim,
    vocab_size=c.vocab_size,
    stacked_transformer_tpl=stack,
    final_ln_tpl=norm(config),
    **parts,
  )
  return Config(models.LanguageModel, name='lm', lm_tpl=lm)
