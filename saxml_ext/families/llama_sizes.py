"""Lists the configs of Meta's models by the names of stock Sax's converter.

The settings follow from the published params.json files.
"""

from collections.abc import Mapping
from typing import Any

from saxml_ext.engine import architecture
from saxml_ext.families import hf_config
from saxml_ext.families import servable

# The scaling of Llama 3.1's rotary positions: factor, low and high frequency
# factor, original length.
SCALING = [8.0, 1.0, 4.0, 8192.0]
# <|end_of_text|>, <|eom_id|> and <|eot_id|>.
STOP_IDS = [128001, 128008, 128009]
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
    factor, low, high, length = SCALING
    scaling = architecture.RotaryScaling(
      32.0 if small else factor, low, high, int(length)
    )
    positions = 131072
  elif base > 10000:  # Code Llama has 1,000,000, and Llama 3 has 500,000.
    positions = 16384 if base > 500000 else 8192
  else:  # Llama 1 has 1e-6, and Llama 2 has 1e-5.
    positions = 2048 if epsilon < 1e-5 else 4096
  stops = tuple(STOP_IDS) if tokens >= _TOKENS else (2,)
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


def _config(
  layers: int,
  dim: int,
  hidden: int,
  heads: int,
  kv_heads: int,
  tokens: int = 32000,
  base: float = 10000.0,
  scaled: bool = False,
  epsilon: float = 1e-5,
) -> hf_config.HFConfig:
  return hf_config.HFConfig(
    layers,
    dim,
    heads,
    hidden,
    tokens,
    num_kv_heads=kv_heads,
    rotary_dim=dim // heads,
    **settings(dim, tokens, base, epsilon, scaled),
  )


_V3 = (_TOKENS, 500000.0)

# The names are those of --model-size of convert_llama_ckpt, and "33b", "65b"
# for Llama 1, of which only the sizes that Llama 2 does not have are listed.
# The 405B has 8 heads of keys and values, and 16 in Meta's checkpoint of 16
# shards, which has each of them twice.
SIZES: Mapping[str, hf_config.HFConfig] = {
  '7b': _config(32, 4096, 11008, 32, 32),
  '13b': _config(40, 5120, 13824, 40, 40),
  '33b': _config(60, 6656, 17920, 52, 52, epsilon=1e-6),
  '65b': _config(80, 8192, 22016, 64, 64, epsilon=1e-6),
  '70b': _config(80, 8192, 28672, 64, 8),
  'llama3_1b': _config(16, 2048, 8192, 32, 8, *_V3, scaled=True),
  'llama3_8b': _config(32, 4096, 14336, 32, 8, *_V3),
  'llama3_70b': _config(80, 8192, 28672, 64, 8, *_V3),
  'llama3_405b_mp8': _config(126, 16384, 53248, 128, 8, *_V3, scaled=True),
  'llama3_405b_mp16': _config(126, 16384, 53248, 128, 16, *_V3, scaled=True),
}


def attributes(size: str) -> dict[str, Any]:
  """Returns the attributes of serving params of a key of SIZES."""
  config = SIZES[size]
  scaling = config.rotary_scaling
  return {
    **{name: getattr(config, field) for field, name in servable.SIZES.items()},
    'ROTARY_DIM': config.rotary_dim,
    'ROTARY_BASE': config.rotary_base,
    'ROTARY_SCALING': scaling and [scaling.factor, *SCALING[1:]],
  }
