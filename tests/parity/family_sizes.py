"""Lists the sizes of the random models of `families_test`."""

import dataclasses

from saxml_ext.engine import architecture
from saxml_ext.families import hf_config

SIZES = hf_config.HFConfig(
  num_layers=2,
  model_dim=32,
  num_heads=4,
  hidden_dim=64,
  rotary_dim=4,
  vocab_size=64,
  max_positions=64,
  bos_id=0,
  eos_id=0,
  pad_id=0,
)
# The sizes of a family whose config.json has more of them.
_LLAMA = dataclasses.replace(SIZES, num_kv_heads=2, rotary_dim=8)
SCALING = architecture.RotaryScaling(8.0, 1.0, 4.0, 16)
OWN_SIZES = {
  'llama': dataclasses.replace(_LLAMA, rotary_scaling=SCALING),
  'qwen2': _LLAMA,
  'qwen3': dataclasses.replace(
    _LLAMA, num_kv_heads=1, rotary_dim=16, own_head_dim=16
  ),
  'phi3': dataclasses.replace(
    SIZES,
    num_kv_heads=2,
    rotary_scaling=architecture.RotaryScaling(
      1.0, 1.0, 4.0, 1, (1.0, 2.5), 1.2
    ),
  ),
  'granite': dataclasses.replace(
    _LLAMA, details=architecture.Details(3.0, 0.22, 0.5, 0.75)
  ),
  'smollm3': dataclasses.replace(
    _LLAMA, details=architecture.Details(unrotated=(1,))
  ),
  'olmo2': _LLAMA,
  'gemma': dataclasses.replace(
    _LLAMA, num_kv_heads=1, rotary_dim=16, own_head_dim=16
  ),
  'mistral': dataclasses.replace(
    _LLAMA, rotary_dim=16, own_head_dim=16, hidden_dim=48
  ),
}
