"""The requirements of MLPerf Inference on models and submissions, by round.

Source: tools/submission of mlcommons/inference at the tags v3.1 to v5.1 and, for
v6.0 and v6.1, its package submission_checker of 2026. What the rounds ask of
LoadGen itself is in `rounds`.
"""

from collections.abc import Mapping
import itertools

from harness.rules import rounds

OPEN = 'open'
CLOSED = 'closed'
NETWORK = 'network'
DIVISIONS = (OPEN, CLOSED, NETWORK)

DATACENTER = 'datacenter'
EDGE = 'edge'
CATEGORIES = (DATACENTER, EDGE)


# Figures of the reference models in float32, on the whole official sets. Source:
# accuracy-target of submission_checker.py.
REFERENCE: Mapping[str, Mapping[str, float]] = {
  rounds.GPTJ: {'rouge1': 42.9865, 'rouge2': 20.1235, 'rougeL': 29.9881},
  rounds.BERT: {'f1': 90.874},
}

# Share of the reference's figures that a model must reach, by the name of the
# model as it is submitted.
SHARES = {
  name: 0.999 if name.endswith('-99.9') else 0.99 for name in rounds.MODELS
}

# Characters that the answers to GPT-J's whole set must have together, whatever
# the share: 90 % of the reference's 4,016,878.
_GEN_LEN = 0.9 * 4_016_878

# Least figures on the whole official set, by the name of the model.
ACCURACY: Mapping[str, Mapping[str, float]] = {
  model: {
    **{
      name: SHARES[model] * figure
      for name, figure in REFERENCE[benchmark].items()
    },
    **({'gen_len': _GEN_LEN} if benchmark == rounds.GPTJ else {}),
  }
  for model, benchmark in rounds.MODELS.items()
}

# Greatest difference between the figures of two float32 runs of one model, whose
# sums are added up in another order. It is a rule of this harness: ROUGE in
# points, F1 in percent.
FLOAT32_TOLERANCE = {rounds.GPTJ: 0.01, rounds.BERT: 0.05}

# How far scores of TEST01 may be from those of the accuracy run, in percent.
TEST_PERCENT: Mapping[str, float] = {'bert-99': 1.0, 'bert-99.9': 0.1}

# The prompts and the search of GPT-J's reference, in tokens. Source:
# language/gpt-j of mlcommons/inference.
MAX_INPUT_LENGTH = 1919
BEAM_SIZE = 4
MIN_NEW_TOKENS = 30
MAX_NEW_TOKENS = 128

_STREAM = (rounds.SINGLE_STREAM, rounds.OFFLINE)
_SERVED = (rounds.SERVER, rounds.OFFLINE)


# What the name of a system that LoadGen reaches over a network holds.
NETWORK_SUT = 'Network SUT'


def is_closed(division: str) -> bool:
  """Returns True if a division has the rules of the closed one.

  The Network division inherits all of them: inference_rules.adoc of
  mlcommons/inference_policies, "Network Division".
  """
  return division in (CLOSED, NETWORK)


def scenarios(round_name: str, category: str, model: str) -> tuple[str, ...]:
  """Returns the scenarios that a closed submission of a model must have.

  Returns:
    LoadGen's names; none if the round does not have the model there. For
    "datacenter,edge", those of both categories.
  """
  if ',' in category:
    both = (scenarios(round_name, each, model) for each in category.split(','))
    return tuple(dict.fromkeys(itertools.chain(*both)))
  if model not in rounds.MODELS:
    return ()
  if rounds.MODELS[model] == rounds.GPTJ:
    if _at_least(round_name, 'v5.1'):
      return ()
  elif category == DATACENTER and _at_least(round_name, 'v5.0'):
    return ()
  elif model == 'bert-99.9' and category == EDGE:
    if not _at_least(round_name, 'v5.0'):
      return ()
  return _SERVED if category == DATACENTER else _STREAM


def rounds_of(category: str, model: str) -> tuple[str, ...]:
  """Returns the rounds that have a model in a category."""
  return tuple(
    name for name in rounds.ROUNDS if scenarios(name, category, model)
  )


def compliance_tests(round_name: str, model: str) -> tuple[str, ...]:
  """Returns the compliance tests that a closed result needs."""
  if rounds.MODELS.get(model) != rounds.BERT:
    return ()
  return ('TEST01',) if _at_least(round_name, 'v5.0') else ('TEST01', 'TEST05')


def results_hold_all(round_name: str) -> bool:
  """Returns True if results hold measurements and compliance (from v6.0)."""
  return _at_least(round_name, 'v6.0')


def needs_mlperf_conf(round_name: str) -> bool:
  """Returns True if mlperf.conf must lie beside user.conf (until v4.1)."""
  return not _at_least(round_name, 'v5.0')


def needs_calibration(round_name: str, division: str) -> bool:
  """Returns True if calibration.md must be there."""
  return is_closed(division) and _at_least(round_name, 'v5.1')


def takes_short_runs(round_name: str) -> bool:
  """Returns True if the checker takes open runs below ten minutes (until v4.0)."""
  return not _at_least(round_name, 'v4.1')


def takes_parts_of_the_set(round_name: str) -> bool:
  """Returns True if open accuracy runs may cover a part of the set (until v5.1)."""
  return not _at_least(round_name, 'v6.0')


def needs_samples_per_query(round_name: str, division: str) -> bool:
  """Returns True if Offline must ask for the whole set or more at once."""
  return is_closed(division) or not _at_least(round_name, 'v6.0')


def _at_least(round_name: str, other: str) -> bool:
  names = list(rounds.ROUNDS)
  return names.index(round_name) >= names.index(other)
