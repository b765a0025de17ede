"""Defines Qwen3: Llama with a norm of each query and key, and wide heads."""

import functools

from saxml_ext.engine import architecture
from saxml_ext.families import hf_config
from saxml_ext.families import llama
from saxml_ext.families import qwen2

_NORM = 'model.layers.{layer}.self_attn.%s_norm.weight'

_size = functools.partial(
  hf_config.HFConfig,
  vocab_size=151936,
  num_kv_heads=8,
  rotary_dim=128,
  rotary_base=1e6,
  ln_epsilon=1e-6,
  max_positions=40960,
  bos_id=151643,
  eos_id=151645,
)
_tied = functools.partial(_size, tied_embeddings=True)

FAMILY = llama.relative(
  'qwen3',
  'Qwen3',
  switches={'qk_norm': architecture.PER_HEAD},
  config={
    'model_class': 'Qwen3ForCausalLM',
    'defaults': {**qwen2.CONFIG['defaults'], 'own_head_dim': 128},
    'accepted': {**qwen2.CONFIG['accepted'], 'attention_bias': (False,)},
    'window': qwen2.CONFIG['window'],
  },
  tensors={
    'layers.query_norm.scale': (_NORM % 'q',),
    'layers.key_norm.scale': (_NORM % 'k',),
  },
  published={
    'qwen3-0.6b': _tied(28, 1024, 16, 3072, own_head_dim=128),
    'qwen3-1.7b': _tied(28, 2048, 16, 6144),
    'qwen3-4b': _tied(36, 2560, 32, 9728, own_head_dim=128),
    'qwen3-8b': _size(36, 4096, 32, 12288),
    'qwen3-14b': _size(40, 5120, 40, 17408),
    'qwen3-32b': _size(64, 5120, 64, 25600, own_head_dim=128),
  },
)
