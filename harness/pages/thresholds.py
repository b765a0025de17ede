"""What the benchmarks ask of accuracy, on their official sets.

Source: submission_checker.py of mlcommons/inference (accuracy-target of its
rounds): 99 % or 99.9 % of what the reference models reach in float32.
"""

from collections.abc import Mapping

from harness.loadgen import rounds

# Figures of the reference models on the whole official sets.
REFERENCE: Mapping[str, Mapping[str, float]] = {
  rounds.GPTJ: {'rouge1': 42.9865, 'rouge2': 20.1235, 'rougeL': 29.9881},
  rounds.BERT: {'f1': 90.874},
}

# Characters that the answers to GPT-J's whole set must have together: 90 % of
# the reference's 4,016,878, whatever the model's name asks of ROUGE.
GEN_LEN = 0.9 * 4_016_878

LEVELS = (99.0, 99.9)


def level(model: str) -> float:
  """Percent of the reference's figures that a submitted model must reach."""
  return 99.9 if model.endswith('-99.9') else 99.0


def bounds(benchmark: str, percent: float) -> dict[str, float]:
  """Lowest figure by name that passes at `percent` of the reference's."""
  lowest = {
    name: value * percent / 100 for name, value in REFERENCE[benchmark].items()
  }
  return lowest | ({'gen_len': GEN_LEN} if benchmark == rounds.GPTJ else {})


def official_set(benchmark: str, samples: int | None) -> bool:
  """Whether a set has as many samples as the official one.

  Figures of other sets say nothing beside the thresholds.
  """
  return samples == rounds.FULL_SET[benchmark]
