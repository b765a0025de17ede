"""Defines Mistral: Llama with heads of any width, and perhaps a window.

Only Mistral 7B 0.1 has a sliding window that is shorter than its context.
"""

from saxml_ext.families import hf_config
from saxml_ext.families import llama


def _size(
  layers: int, width: int, hidden: int, vocab: int, positions: int, base: float
) -> hf_config.HFConfig:
  return hf_config.HFConfig(
    layers,
    width,
    32,
    hidden,
    vocab,
    num_kv_heads=8,
    rotary_dim=128,
    rotary_base=base,
    max_positions=positions,
    bos_id=1,
    eos_id=2,
    own_head_dim=0 if width == 32 * 128 else 128,
  )


FAMILY = llama.relative(
  'mistral',
  'Mistral',
  switches={'interleaved': True},
  config={
    'model_class': 'MistralForCausalLM',
    'defaults': {
      **llama.CONFIG.defaults,
      'num_kv_heads': 8,
      'max_positions': 131072,
    },
    'window': hf_config.Window(4096),
  },
  published={
    'mistral-7b-v0.3': _size(32, 4096, 14336, 32768, 32768, 1e6),
    'mistral-nemo-12b': _size(40, 5120, 14336, 131072, 131072, 1e6),
    'mistral-small-24b': _size(40, 5120, 32768, 131072, 32768, 1e8),
  },
)
