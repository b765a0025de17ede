"""Defines GPT-NeoX and models of the same form: Pythia, Dolly, RedPajama.

Attention and feed-forward have two norms. The config of a model chooses whether
they are parallel or follow each other, and the form of GELU. Each combination
is a family of its own, because the description of a PAX checkpoint has only the
name of its family.
"""

import dataclasses
import re
from typing import Any

from saxml_ext.engine import architecture
from saxml_ext.families import family
from saxml_ext.families import gptj
from saxml_ext.families import hf_config
from saxml_ext.families import servable

_LAYER = 'gpt_neox.layers.{layer}.'
_QKV = _LAYER + 'attention.query_key_value.'
_ANY = 'saxml_ext.params.gpt_neox.AnyGPTNeoX'

_CONFIG = hf_config.Table(
  'GPTNeoXForCausalLM',
  keys={
    'num_layers': 'num_hidden_layers',
    'model_dim': 'hidden_size',
    'num_heads': 'num_attention_heads',
    'hidden_dim': 'intermediate_size',
    'max_positions': 'max_position_embeddings',
    'rotary_share': 'partial_rotary_factor',
    'rotary_base': 'rope_theta',
    'ln_epsilon': 'layer_norm_eps',
  },
  defaults={
    'max_positions': 2048,
    'rotary_share': 0.25,
    'rotary_base': 10000.0,
    'ln_epsilon': 1e-5,
    'bos_id': 0,
    'eos_id': 2,
  },
  accepted={
    'hidden_act': ('gelu', 'gelu_python'),
    'use_parallel_residual': (True,),
    'attention_bias': (True,),
  },
  rotary_names={
    'partial_rotary_factor': 'rotary_pct',
    'rope_theta': 'rotary_emb_base',
  },
  model_type='gpt_neox',
  variant_keys=('hidden_act', 'use_parallel_residual'),
)

FAMILY = family.Family(
  name='gpt_neox',
  title='GPT-NeoX',
  architecture=architecture.Architecture(
    residual=architecture.PARALLEL,
    activation=architecture.GELU,
    biases=architecture.BIASES,
    interleaved=False,
  ),
  config=_CONFIG,
  tensors={
    'embedding': ('gpt_neox.embed_in.weight',),
    'layers.norm.scale': (_LAYER + 'input_layernorm.weight',),
    'layers.norm.bias': (_LAYER + 'input_layernorm.bias',),
    'layers.qkv': (_QKV + 'weight',),
    'layers.qkv_bias': (_QKV + 'bias',),
    'layers.post': (_LAYER + 'attention.dense.weight',),
    'layers.post_bias': (_LAYER + 'attention.dense.bias',),
    'layers.ff_norm.scale': (_LAYER + 'post_attention_layernorm.weight',),
    'layers.ff_norm.bias': (_LAYER + 'post_attention_layernorm.bias',),
    'layers.up': (_LAYER + 'mlp.dense_h_to_4h.weight',),
    'layers.up_bias': (_LAYER + 'mlp.dense_h_to_4h.bias',),
    'layers.down': (_LAYER + 'mlp.dense_4h_to_h.weight',),
    'layers.down_bias': (_LAYER + 'mlp.dense_4h_to_h.bias',),
    'final_norm.scale': ('gpt_neox.final_layer_norm.weight',),
    'final_norm.bias': ('gpt_neox.final_layer_norm.bias',),
    'head': ('embed_out.weight',),
    'head_bias': (),
  },
  rotates_halves=True,
  buffers=re.compile(
    r'gpt_neox\.layers\.\d+\.attention\.'
    r'(bias|masked_bias|rotary_emb\.inv_freq)'
  ),
  params={
    _ANY: servable.Params(
      'A GPT-NeoX of any size, with the settings of AnyGPTJ.',
      gptj.ANY,
      ARCHITECTURE='gpt_neox',
    )
  },
  serving=_ANY,
  published={
    name: hf_config.HFConfig(
      layers, dim, heads, 4 * dim, tokens, rotary_dim=rotary_dim
    )
    for name, layers, dim, heads, rotary_dim, tokens in (
      ('pythia-70m', 6, 512, 8, 16, 50304),
      ('pythia-410m', 24, 1024, 16, 16, 50304),
      ('pythia-1.4b', 24, 2048, 16, 32, 50304),
      ('gpt-neox-20b', 44, 6144, 64, 24, 50432),
    )
  },
)


def _variant(suffix: str) -> family.Family:
  """Returns GPT-NeoX with other switches, which the suffix of its name lists."""
  name, params = FAMILY.name + suffix, _ANY + suffix.title().replace('_', '')
  switches: dict[str, Any] = {}
  accepted = dict(_CONFIG.accepted)
  if 'sequential' in suffix:
    switches['residual'] = architecture.SEQUENTIAL
    accepted['use_parallel_residual'] = (False,)
  if 'tanh' in suffix:
    switches['activation'] = architecture.GELU_TANH
    accepted['hidden_act'] = hf_config.GELU_TANH_NAMES
  doc = f'Like AnyGPTNeoX, for the family {name}.'
  return dataclasses.replace(
    FAMILY,
    name=name,
    architecture=dataclasses.replace(FAMILY.architecture, **switches),
    config=dataclasses.replace(_CONFIG, accepted=accepted),
    params={params: servable.Params(doc, _ANY, ARCHITECTURE=name)},
    serving=params,
    published={},
  )


VARIANTS = tuple(map(_variant, ('_sequential', '_tanh', '_sequential_tanh')))
