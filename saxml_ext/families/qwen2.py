"""Defines Qwen2 and Qwen2.5: Llama with biases of queries, keys and values."""

from collections.abc import Mapping
from typing import Any

from saxml_ext.engine import architecture
from saxml_ext.families import gptj
from saxml_ext.families import hf_config
from saxml_ext.families import llama
from saxml_ext.families import servable

_ANY = 'saxml_ext.params.qwen2.AnyQwen2'
_BIASES = 'model.layers.{layer}.self_attn.%s_proj.bias'

CONFIG: Mapping[str, Any] = {
  'model_class': 'Qwen2ForCausalLM',
  'defaults': {
    'num_kv_heads': 32,
    'max_positions': 32768,
    'rotary_base': 10000.0,
    'ln_epsilon': 1e-6,
  },
  'accepted': {
    'hidden_act': ('silu', 'swish'),
    'use_sliding_window': (False, True),
    'partial_rotary_factor': (None, 1.0),
  },
  'window': hf_config.Window(4096, 'use_sliding_window', layers=28),
}


def _size(
  layers: int, width: int, heads: int, hidden: int, kv_heads: int, tied: bool
) -> hf_config.HFConfig:
  return hf_config.HFConfig(
    layers,
    width,
    heads,
    hidden,
    151936 if tied else 152064,
    num_kv_heads=kv_heads,
    rotary_dim=width // heads,
    rotary_base=1e6,
    ln_epsilon=1e-6,
    max_positions=32768,
    tied_embeddings=tied,
    bos_id=151643,
    eos_id=151643,
  )


FAMILY = llama.relative(
  'qwen2',
  'Qwen2',
  config=CONFIG,
  switches={'biases': (architecture.QKV,), 'interleaved': True},
  tensors={'layers.qkv_bias': tuple(_BIASES % part for part in 'qkv')},
  params={
    _ANY: servable.Params(
      'A Qwen2 of any size, with the settings of AnyGPTJ.',
      gptj.ANY,
      ARCHITECTURE='qwen2',
    )
  },
  serving=_ANY,
  published={
    'qwen2.5-0.5b': _size(24, 896, 14, 4864, 2, tied=True),
    'qwen2.5-7b': _size(28, 3584, 28, 18944, 4, tied=False),
  },
)
