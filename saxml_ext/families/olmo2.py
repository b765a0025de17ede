"""Defines OLMo 2: norms follow attention and feed-forward, queries and keys."""

import functools

from saxml_ext.engine import architecture
from saxml_ext.families import hf_config
from saxml_ext.families import llama

_LAYER = 'model.layers.{layer}.'

_size = functools.partial(
  hf_config.HFConfig,
  vocab_size=100352,
  rotary_dim=128,
  rotary_base=500000.0,
  ln_epsilon=1e-6,
  max_positions=4096,
  eos_id=100257,
  pad_id=100277,
)

FAMILY = llama.relative(
  'olmo2',
  'OLMo2',
  switches={'norm_policy': architecture.AFTER, 'qk_norm': architecture.ALL},
  config={
    'model_class': 'Olmo2ForCausalLM',
    'defaults': {
      'max_positions': 2048,
      'rotary_base': 10000.0,
      'ln_epsilon': 1e-5,
      'eos_id': 50279,
      'pad_id': 1,
    },
  },
  tensors={
    'layers.norm.scale': (_LAYER + 'post_attention_layernorm.weight',),
    'layers.ff_norm.scale': (_LAYER + 'post_feedforward_layernorm.weight',),
    'layers.query_norm.scale': (_LAYER + 'self_attn.q_norm.weight',),
    'layers.key_norm.scale': (_LAYER + 'self_attn.k_norm.weight',),
  },
  published={
    'olmo-2-1b': _size(16, 2048, 16, 8192, num_kv_heads=16),
    'olmo-2-7b': _size(32, 4096, 32, 11008, num_kv_heads=32),
    'olmo-2-13b': _size(40, 5120, 40, 13824, num_kv_heads=40),
    'olmo-2-32b': _size(64, 5120, 40, 27648, num_kv_heads=8),
  },
)
