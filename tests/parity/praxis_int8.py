"""Makes INT8 variables of a GPT-J with praxis itself, for comparisons.

N is the number of heads, H the head dimension, D the model dimension, F the
hidden dimension and V the size of the vocabulary; see `layout`. Under
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

On request, `params.lm.softmax.logits_ffn.linear.w` [D, V] is quantized too,
summed over D, with the scale [V]. All other variables stay float32 under their
names. Symmetric quantization has no zero points. The dims have the order of the
float variable. The scale has the same dims without the summed ones.

A scale is max |w| over the summed dims divided by 127, or 1 if the maximum is
0. A value is w divided by the scale, rounded half to even, between -127 and
127. The product of the int8 value and the scale approximates w. All
computations are in float32.
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
