"""Defines Qwen3: Llama with a norm of each query and key, and wide heads."""

import dataclasses

from saxml_ext.engine import architecture
from saxml_ext.families import hf_config
from saxml_ext.families import llama

_NORM = 'model.layers.{layer}.self_attn.%s_norm.weight'


def _size(
  layers: int,
  width: int,
  heads: int,
  hidden: int,
  tied: bool = False,
) -> hf_config.HFConfig:
  return hf_config.HFConfig(
    layers,
    width,
    heads,
    hidden,
    151936,
    num_kv_heads=8,
    rotary_dim=128,
    rotary_base=1e6,
    ln_epsilon=1e-6,
    max_positions=40960,
    tied_embeddings=tied,
    bos_id=151643,
    eos_id=151645,
    own_head_dim=0 if width == 128 * heads else 128,
  )


FAMILY = llama.relative(
  'qwen3',
  'Qwen3',
  architecture=dataclasses.replace(
    llama.FAMILY.architecture, qk_norm=architecture.PER_HEAD, interleaved=False
  ),
  config=dataclasses.replace(
    llama.CONFIG,
    model_class='Qwen3ForCausalLM',
    defaults={
      'num_kv_heads': 32,
      'own_head_dim': 128,
      'max_positions': 32768,
      'rotary_base': 10000.0,
      'ln_epsilon': 1e-6,
    },
    accepted={
      'hidden_act': ('silu', 'swish'),
      'attention_bias': (False,),
      'use_sliding_window': (False, True),
      'partial_rotary_factor': (None, 1.0),
    },
    window=hf_config.Window(4096, 'use_sliding_window', layers=28),
  ),
  tensors={
    **llama.FAMILY.tensors,
    'layers.query_norm.scale': (_NORM % 'q',),
    'layers.key_norm.scale': (_NORM % 'k',),
  },
  rotates_halves=False,
  published={
    'qwen3-0.6b': _size(28, 1024, 16, 3072, tied=True),
    'qwen3-1.7b': _size(28, 2048, 16, 6144, tied=True),
    'qwen3-4b': _size(36, 2560, 32, 9728, tied=True),
    'qwen3-8b': _size(36, 4096, 32, 12288),
    'qwen3-14b': _size(40, 5120, 40, 17408),
    'qwen3-32b': _size(64, 5120, 64, 25600),
  },
)
