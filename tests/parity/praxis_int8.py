"""INT8 variables of a GPT-J as praxis itself makes them, to compare with.

N heads, H dimension of a head, D model, F hidden, V words; see `layout`. Under
`params.lm.transformer.x_layers_<i>.`:

  name                                    type     shape         summed dims
  self_attention.combined_qkv.w           int8     [3, D, N, H]  D
  ... .w_quantized_scale                  float32  [3, N, H]
  self_attention.post.w                   int8     [D, N, H]     N, H
  ... .w_quantized_scale                  float32  [D]
  ff_layer.ffn_layer1.linear.w            int8     [D, F]        D
  ... .w_quantized_scale                  float32  [F]
  ff_layer.ffn_layer2.linear.w            int8     [F, D]        F
  ... .w_quantized_scale                  float32  [D]

and `params.lm.softmax.logits_ffn.linear.w` [D, V] with its scale [V], summed
over D, if asked for. All others stay float32 under their names; symmetric
quantization has no zero points. The orientation is that of the float variable,
and the scale has its shape without the summed dims, in their order.

A scale is max |w| over the summed dims divided by 127, and 1 where that is 0. A
value is w divided by the scale, rounded half to even: -127 to 127. w is int8
times scale. All of it is float32.
"""

from collections.abc import Mapping

from flax import traverse_util
import jax
import numpy as np

from saxml_ext.engine import config as config_lib
from saxml_ext.families import praxis_models

# praxis can be imported once the modules above have prepared it.
# isort: split
from praxis import base_layer
from praxis import pax_fiddle
from praxis.layers import quantization
from praxis.layers.quantization import quantization_hparams
from praxis.layers.quantization import quantize

_MATERIALIZE = quantization_hparams.QuantizationMode.MATERIALIZE


def quantized(
  variables: Mapping[str, np.ndarray],
  config: config_lib.ModelConfig,
  head: bool = False,
) -> dict[str, np.ndarray]:
  """Returns the int8 variables of float32 ones, under the same names.

  Args:
    variables: All variables of the model.
    config: The sizes of the model.
    head: True to quantize the head too.
  """
  model = praxis_models.gptj(config)
  quantize.set_transformer_quantization(model, mode=_MATERIALIZE)
  if head:
    model.lm_tpl.softmax_tpl.feed_forward_tpl.linear_tpl = pax_fiddle.Config(
      quantization.Linear,
      quantization=quantization_hparams.QuantizationParams(mode=_MATERIALIZE),
    )
  layer = base_layer.instantiate(model)
  context = base_layer.JaxContext.HParams(do_eval=True)
  with base_layer.JaxContext.new_context(hparams=context):
    tree, _ = layer.apply(
      traverse_util.unflatten_dict(variables, sep='.'),
      method=layer.quantize_weight,
      mutable=[],
    )
  return {
    '.'.join(part.key for part in path): np.asarray(value)
    for path, value in jax.tree_util.tree_leaves_with_path(tree)
  }
