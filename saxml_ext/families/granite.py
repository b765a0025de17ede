"""Defines Granite 3: Llama with four constant factors."""

from saxml_ext.engine import architecture
from saxml_ext.families import hf_config
from saxml_ext.families import hf_details
from saxml_ext.families import llama


def _size(
  width: int, hidden: int, attention: float, divisor: float
) -> hf_config.HFConfig:
  return hf_config.HFConfig(
    40,
    width,
    32,
    hidden,
    49159,
    num_kv_heads=8,
    rotary_dim=width // 32,
    rotary_base=1e7,
    max_positions=131072,
    tied_embeddings=True,
    bos_id=0,
    eos_id=0,
    pad_id=0,
    details=architecture.Details(12.0, 0.22, attention, divisor),
  )


FAMILY = llama.relative(
  'granite',
  'Granite',
  config={
    'model_class': 'GraniteForCausalLM',
    'details': hf_details.Names(
      {
        'embedding': 'embedding_multiplier',
        'residual': 'residual_multiplier',
        'attention': 'attention_multiplier',
        'logits_divisor': 'logits_scaling',
      }
    ),
  },
  published={
    'granite-3.3-2b': _size(2048, 8192, 0.015625, 8.0),
    'granite-3.3-8b': _size(4096, 12800, 0.0078125, 16.0),
  },
)
