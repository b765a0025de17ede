"""Defines the default measurements of the benchmark for each --model."""

from collections.abc import Mapping
import dataclasses

from benchmarks import contenders
from saxml_ext.families import hf_config
from saxml_ext.families import llama_sizes


@dataclasses.dataclass(frozen=True)
class Preset:
  """The sizes of the model and of the work; bench.py explains the flags.

  Attributes:
    family: The family of the model, one of contenders.FAMILIES.
    sizes: The sizes of the model.
    weights: The type of the weights on disk.
    engines: The names of the contenders.
    counts: The numbers of requests of the fixed set.
    trial_new_tokens: The limit of an answer in a trial, see settings.Settings.
  """

  family: str
  sizes: hf_config.HFConfig
  weights: str
  engines: tuple[str, ...]
  counts: tuple[int, ...]
  prompt: int
  new_tokens: int
  rounds: int
  trial_new_tokens: int | None


def _gptj(layers: int, dim: int, heads: int) -> hf_config.HFConfig:
  return hf_config.HFConfig(layers, dim, heads, 4 * dim, 50400, rotary_dim=64)


_SMALL = Preset(
  family=contenders.GPTJ,
  sizes=_gptj(4, 512, 4),
  weights='float32',
  engines=tuple(
    c.name for c in contenders.ALL if contenders.GPTJ in c.families
  ),
  counts=(8,),
  prompt=256,
  new_tokens=64,
  rounds=5,
  trial_new_tokens=None,
)

# These are the sizes of GPT-J 6B. Two engines hold 7 GB each. Each needs about
# a minute per round on a core that computes 300 Gop/s in int8.
_GPTJ_6B = Preset(
  family=contenders.GPTJ,
  sizes=_gptj(28, 4096, 16),
  weights='bfloat16',
  engines=('ours_int8', 'ct2_int8'),
  counts=(8,),
  prompt=64,
  new_tokens=16,
  rounds=3,
  trial_new_tokens=4,
)

# The weights are random, so no token must end an answer.
_LLAMA_1B, _LLAMA_8B = (
  dataclasses.replace(llama_sizes.SIZES[name], stop_ids=())
  for name in ('llama3_1b', 'llama3_8b')
)
_SMALL_LLAMA = Preset(
  family=contenders.LLAMA,
  sizes=_LLAMA_1B,
  weights='bfloat16',
  engines=(
    'ours_int8',
    'ct2_int8',
    'llama_cpp_q8_0',
    'llama_cpp_q4_0',
    'ours_int4',
    'transformers_bfloat16',
    'transformers_float32',
  ),
  counts=(1, 8, 32),
  prompt=256,
  new_tokens=64,
  rounds=3,
  trial_new_tokens=4,
)

# The bundled model has its own sizes, which replace those of its preset.
OF_MODEL: Mapping[str, Preset] = {
  'random': _SMALL,
  'bundled': _SMALL,
  '6b': _GPTJ_6B,
  '1b': _SMALL_LLAMA,
  '8b_4layers': dataclasses.replace(
    _SMALL_LLAMA, sizes=dataclasses.replace(_LLAMA_8B, num_layers=4)
  ),
  '8b': dataclasses.replace(
    _SMALL_LLAMA,
    sizes=_LLAMA_8B,
    engines=_SMALL_LLAMA.engines[:3],
    counts=(1, 8),
    prompt=64,
    new_tokens=16,
  ),
}

# The answers of these engines can be compared. Their types are the most common
# ones.
_OF_WIDTHS = (
  'ours_int8',
  'ours_float32',
  'ct2_int8',
  'ct2_float32',
  'transformers_float32',
)


def compare_widths(preset: Preset) -> Preset:
  """Returns a preset for widths of 4 to 100 beams that runs for ten minutes."""
  return dataclasses.replace(
    preset,
    engines=tuple(name for name in _OF_WIDTHS if name in preset.engines),
    new_tokens=min(preset.new_tokens, 32),
    rounds=3,
  )
