"""Lists the configs of Meta's models by the names of stock Sax's converter.

The settings follow from the published params.json files.
"""

from collections.abc import Mapping
from typing import Any

from saxml_ext.engine import architecture
from saxml_ext.families import hf_config
from saxml_ext.families import llama_published

# Llama 3 and later have this many tokens; Llama 1 and 2 have 32,000.
_TOKENS = 128256
# Llama 3.2, which has widths of up to 3,072, was extended by a larger factor
# than Llama 3.1.
_SMALL = 3072


def settings(
  dim: int, tokens: int, base: float, epsilon: float, scaled: bool
) -> dict[str, Any]:
  """Returns the fields of HFConfig that Meta's files do not contain.

  Args:
    dim: The width of the model.
    tokens: The size of the vocabulary.
    base: The base of rotary positions.
    epsilon: The epsilon of norms.
    scaled: True if rotary positions are scaled, as in Llama 3.1 and later.
  """
  small = scaled and dim <= _SMALL
  scaling = None
  if scaled:
    factor, low, high, length = llama_published.SCALING
    scaling = architecture.RotaryScaling(
      32.0 if small else factor, low, high, int(length)
    )
    positions = 131072
  elif base > 10000:  # Code Llama has 1,000,000, and Llama 3 has 500,000.
    positions = 16384 if base > 500000 else 8192
  else:  # Llama 1 has 1e-6, and Llama 2 has 1e-5.
    positions = 2048 if epsilon < 1e-5 else 4096
  stops = tuple(llama_published.STOP_IDS) if tokens >= _TOKENS else (2,)
  return {
    'rotary_base': base,
    'rotary_scaling': scaling,
    'max_positions': positions,
    'ln_epsilon': epsilon,
    'tied_embeddings': small,
    'bos_id': 128000 if tokens >= _TOKENS else 1,
    'eos_id': stops[0],
    # Llama 3's instruction models end turns with the other two.
    'stop_ids': stops,
  }


def _config(name: str, size: llama_published.Size) -> hf_config.HFConfig:
  # Of Llama 1, only the sizes that Llama 2 does not have are listed.
  epsilon = 1e-6 if name in ('33b', '65b') else 1e-5
  return hf_config.HFConfig(
    size.layers,
    size.width,
    size.heads,
    size.hidden,
    size.vocab,
    num_kv_heads=size.kv_heads,
    rotary_dim=size.width // size.heads,
    **settings(
      size.width, size.vocab, size.base, epsilon, size.scaling is not None
    ),
  )


SIZES: Mapping[str, hf_config.HFConfig] = {
  name: _config(name, size) for name, size in llama_published.SIZES.items()
}
