"""Defines Phi-3 and Phi-4: Llama with fused matrices and partial rotation."""

from saxml_ext.engine import architecture
from saxml_ext.families import hf_config
from saxml_ext.families import hf_rotary
from saxml_ext.families import llama

_LAYER = 'model.layers.{layer}.'
_QKV = _LAYER + 'self_attn.qkv_proj.weight'
_GATE_UP = _LAYER + 'mlp.gate_up_proj.weight'

FAMILY = llama.relative(
  'phi3',
  'Phi3',
  config={
    'model_class': 'Phi3ForCausalLM',
    'keys': {
      **{k: v for k, v in llama.CONFIG.keys.items() if k != 'own_head_dim'},
      'rotary_share': 'partial_rotary_factor',
    },
    'defaults': {
      'max_positions': 4096,
      'original_length': 4096,
      'rotary_share': 1.0,
      'rotary_base': 10000.0,
      'ln_epsilon': 1e-5,
      'bos_id': 1,
      'eos_id': 32000,
      'pad_id': 32000,
    },
    'accepted': {
      'hidden_act': ('silu', 'swish'),
      'attention_bias': (False,),
      'mlp_bias': (False,),
    },
    'rotary_names': {
      'rope_theta': 'rope_theta',
      'partial_rotary_factor': 'partial_rotary_factor',
    },
    'window': hf_config.Window(None),
    # The first files of Phi-3 call longrope "su".
    'rope_types': ('default', hf_rotary.LONGROPE, 'su'),
  },
  tensors={
    'layers.qkv': (_QKV,) * 3,
    'layers.gate': (_GATE_UP,),
    'layers.up': (_GATE_UP,),
  },
  fused={
    _QKV: ('layers.query', 'layers.key', 'layers.value'),
    _GATE_UP: ('layers.gate', 'layers.up'),
  },
  published={
    # The context is the window of its layers.
    'phi-3-mini-4k': hf_config.HFConfig(
      32,
      3072,
      32,
      8192,
      32064,
      rotary_dim=96,
      max_positions=2047,
      bos_id=1,
      eos_id=32000,
    ),
    'phi-4': hf_config.HFConfig(
      40,
      5120,
      40,
      17920,
      100352,
      num_kv_heads=10,
      rotary_dim=128,
      rotary_base=250000.0,
      max_positions=16384,
      bos_id=100257,
      eos_id=100257,
    ),
    # Up to this context, its divisors are 1. The factor of sines and cosines
    # follows from the length of 131,072 that other divisors reach.
    'phi-4-mini': hf_config.HFConfig(
      32,
      3072,
      24,
      8192,
      200064,
      num_kv_heads=8,
      rotary_dim=96,
      rotary_scaling=architecture.RotaryScaling(
        1.0, 1.0, 4.0, 1, (1.0,) * 48, 1.1902380714238083
      ),
      max_positions=4096,
      tied_embeddings=True,
      bos_id=199999,
      eos_id=199999,
    ),
  },
)
