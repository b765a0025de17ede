"""Defines SmolLM3: Llama in which some layers have no rotary positions."""

from saxml_ext.engine import architecture
from saxml_ext.families import hf_config
from saxml_ext.families import hf_details
from saxml_ext.families import llama

FAMILY = llama.relative(
  'smollm3',
  'SmolLM3',
  config={
    'model_class': 'SmolLM3ForCausalLM',
    'defaults': {
      'num_kv_heads': 4,
      'max_positions': 32768,
      'rotary_base': 2e6,
      'ln_epsilon': 1e-6,
      'tied_embeddings': True,
      'bos_id': 128000,
      'eos_id': 128001,
      'pad_id': 128004,
    },
    'accepted': {**llama.CONFIG.accepted, 'use_sliding_window': (False, True)},
    'window': hf_config.Window(None, 'use_sliding_window'),
    'details': hf_details.Names(skips_rotation=True),
  },
  published={
    'smollm3-3b': hf_config.HFConfig(
      36,
      2048,
      16,
      11008,
      128256,
      num_kv_heads=4,
      rotary_dim=128,
      rotary_base=5e6,
      ln_epsilon=1e-6,
      max_positions=65536,
      tied_embeddings=True,
      bos_id=128000,
      eos_id=128012,
      details=architecture.Details(unrotated=tuple(range(3, 36, 4))),
    )
  },
)
