"""Defines Gemma 1: scaled embeddings, norms that store scale - 1, and GeGLU."""

import functools

from saxml_ext.engine import architecture
from saxml_ext.families import hf_config
from saxml_ext.families import hf_details
from saxml_ext.families import llama

_size = functools.partial(
  hf_config.HFConfig,
  vocab_size=256000,
  rotary_dim=256,
  ln_epsilon=1e-6,
  max_positions=8192,
  tied_embeddings=True,
  bos_id=2,
  eos_id=1,
  pad_id=0,
)

FAMILY = llama.relative(
  'gemma',
  'Gemma',
  switches={'activation': architecture.GELU_TANH},
  ln_direct_scale=False,
  config={
    'model_class': 'GemmaForCausalLM',
    'defaults': {
      'num_kv_heads': 16,
      'own_head_dim': 256,
      'max_positions': 8192,
      'rotary_base': 10000.0,
      'ln_epsilon': 1e-6,
      'tied_embeddings': True,
      'bos_id': 2,
      'eos_id': 1,
      'pad_id': 0,
    },
    'accepted': {
      # The first files say "gelu" and mean the approximation.
      'hidden_act': ('gelu_pytorch_tanh', 'gelu'),
      'attention_bias': (False,),
      'use_bidirectional_attention': (None, False),
      'partial_rotary_factor': (None, 1.0),
    },
    'details': hf_details.Names(rooted_embedding=True),
  },
  published={
    'gemma-2b': _size(18, 2048, 8, 16384, num_kv_heads=1),
    'gemma-7b': _size(28, 3072, 16, 24576, num_kv_heads=16, own_head_dim=256),
  },
)
