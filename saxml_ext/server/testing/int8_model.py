"""A random int8 GPT-J that is large enough to measure its memory."""

from collections.abc import Iterator

import numpy as np

from saxml_ext.families import hf_config
from saxml_ext.families import layout
from saxml_ext.pax.testing import checkpoints

# The model has 345 MB in int8 and is written and read within seconds.
SHAPE = hf_config.HFConfig(
  num_layers=6, model_dim=2048, num_heads=16, hidden_dim=8192, vocab_size=4096
)
ROTARY_DIM = 64

# The dimensions over which matrix products do not sum, by name suffix.
_OUTPUTS = {'combined_qkv.w': (0, 2, 3), 'post.w': (0,), 'linear.w': (1,)}


def write(directory: str) -> None:
  """Writes the model's checkpoint, without gptj_config.json."""
  checkpoints.write_checkpoint(directory, _variables())


def _variables() -> Iterator[tuple[str, np.ndarray]]:
  """Yields the variables: random codes and scales for matrices, else zeros."""
  rng = np.random.default_rng(0)
  for variable in layout.variables(SHAPE):
    name, shape = variable.name, variable.shape
    kept = next((a for end, a in _OUTPUTS.items() if name.endswith(end)), ())
    if kept:
      codes = np.frombuffer(rng.bytes(int(np.prod(shape))), np.int8)
      yield name, codes.reshape(shape)
      scale = np.full([shape[a] for a in kept], 1e-3, np.float32)
      yield f'{name}_quantized_scale', scale
    else:
      yield name, np.zeros(shape, np.float32)
