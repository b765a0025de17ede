"""LmCloudSpmd as a praxis LanguageModel, with the variables of a checkpoint.

paxml's own experiments (paxml/tasks/lm/params/lm_cloud.py) configure training,
and fix their sizes; this is what of them computes, for sizes that are given.
"""

from typing import TypeAlias

from saxml_ext.engine import config as config_lib
from saxml_ext.families.praxis import stack

# praxis can be imported once the module above has prepared it.
# isort: split
from praxis import pax_fiddle
from praxis.layers import activations
from praxis.layers import attentions
from praxis.layers import embedding_softmax
from praxis.layers import transformers

Config: TypeAlias = pax_fiddle.Config


def language_model(
  config: config_lib.ModelConfig, repeated: bool = False
) -> Config:
  """Returns a LanguageModel of these sizes, in float32.

  Args:
    config: The sizes, of the architecture LM_CLOUD or one with other caps.
    repeated: True if the layers share their variables.
  """
  architecture = config.architecture
  layer = Config(
    transformers.Transformer,
    ln_tpl=stack.norm(config),
    tr_atten_tpl=Config(
      attentions.DotProductAttention,
      combine_qkv=True,
      use_bias=False,
      atten_logit_cap=architecture.attention_cap or 0.0,
    ),
    tr_fflayer_tpl=Config(
      transformers.TransformerFeedForward,
      activation_tpl=Config(activations.GELU, approximate=True),
      ln_tpl=stack.norm(config),
    ),
  )
  return stack.language_model(
    config,
    layer,
    repeated,
    softmax_tpl=Config(
      embedding_softmax.SharedEmbeddingSoftmax,
      scale_sqrt_depth=architecture.scaled_embedding,
      soft_cap_logits=architecture.logit_cap or 0.0,
    ),
  )
