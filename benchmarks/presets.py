"""Defines the default measurements of the benchmark for each --model."""

from collections.abc import Mapping
import dataclasses

from benchmarks import contenders


@dataclasses.dataclass(frozen=True)
class Preset:
  """The sizes of the model and of the work; bench.py explains the flags.

  Attributes:
    weights: The type of the weights on disk.
    engines: The names of the contenders.
    trial_new_tokens: The limit of an answer in a trial, see settings.Settings.
  """

  layers: int
  dim: int
  heads: int
  rotary: int
  vocab: int
  weights: str
  engines: tuple[str, ...]
  batch: int
  prompt: int
  new_tokens: int
  rounds: int
  trial_new_tokens: int | None


_SMALL = Preset(
  layers=4,
  dim=512,
  heads=4,
  rotary=64,
  vocab=50400,
  weights='float32',
  engines=tuple(c.name for c in contenders.ALL),
  batch=8,
  prompt=256,
  new_tokens=64,
  rounds=5,
  trial_new_tokens=None,
)

# These are the sizes of GPT-J 6B. Two engines hold 7 GB each. Each needs about
# a minute per round on a core that computes 300 Gop/s in int8.
_GPTJ_6B = Preset(
  layers=28,
  dim=4096,
  heads=16,
  rotary=64,
  vocab=50400,
  weights='bfloat16',
  engines=('ours_int8', 'ct2_int8'),
  batch=8,
  prompt=64,
  new_tokens=16,
  rounds=3,
  trial_new_tokens=4,
)

# The bundled model has its own sizes, which replace those of its preset.
OF_MODEL: Mapping[str, Preset] = {
  'random': _SMALL,
  'bundled': _SMALL,
  '6b': _GPTJ_6B,
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


def of_widths(preset: Preset) -> Preset:
  """Returns a preset for widths of 4 to 100 beams that runs for ten minutes."""
  return dataclasses.replace(
    preset,
    engines=tuple(name for name in _OF_WIDTHS if name in preset.engines),
    new_tokens=min(preset.new_tokens, 32),
    rounds=3,
  )
