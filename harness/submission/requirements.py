"""What each round of MLPerf Inference asks of a submission.

Source: tools/submission of mlcommons/inference at the tags v3.1 to v5.1 and, for
v6.0 and v6.1, its package submission_checker of 2026. What the rounds ask of
LoadGen itself is in `harness.loadgen.rounds`.
"""

from collections.abc import Mapping
import itertools

from harness.loadgen import rounds

OPEN = 'open'
CLOSED = 'closed'
NETWORK = 'network'
DIVISIONS = (OPEN, CLOSED, NETWORK)

DATACENTER = 'datacenter'
EDGE = 'edge'
CATEGORIES = (DATACENTER, EDGE)


# Least figures by what the evaluation calls them: 99 % and 99.9 % of the
# reference's. gen_len is the sum of characters, 90 % of the reference's.
ACCURACY: Mapping[str, Mapping[str, float]] = {
  'gptj-99': {
    'rouge1': 42.556635,
    'rouge2': 19.922265,
    'rougeL': 29.688219,
    'gen_len': 3615190.2,
  },
  'gptj-99.9': {
    'rouge1': 42.9435135,
    'rouge2': 20.1033765,
    'rougeL': 29.9581119,
    'gen_len': 3615190.2,
  },
  'bert-99': {'f1': 89.96526},
  'bert-99.9': {'f1': 90.783126},
}

# How far scores of TEST01 may be from those of the accuracy run, in percent.
TEST_PERCENT: Mapping[str, float] = {'bert-99': 1.0, 'bert-99.9': 0.1}

# How the reference of GPT-J searches.
BEAM_SIZE = 4

_STREAM = (rounds.SINGLE_STREAM, rounds.OFFLINE)
_SERVED = (rounds.SERVER, rounds.OFFLINE)


# What the name of a system that LoadGen reaches over a network holds.
NETWORK_SUT = 'Network SUT'


def is_closed(division: str) -> bool:
  """Returns whether a division has the rules of the closed one.

  The Network division inherits all of them: inference_rules.adoc of
  mlcommons/inference_policies, "Network Division".
  """
  return division in (CLOSED, NETWORK)


def scenarios(round_name: str, category: str, model: str) -> tuple[str, ...]:
  """Scenarios that a closed submission of a model must have.

  Returns:
    LoadGen's names; none where the round does not have the model there. Those
    of both categories for "datacenter,edge".
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
  """The rounds that have a model in a category."""
  return tuple(
    name for name in rounds.ROUNDS if scenarios(name, category, model)
  )


def compliance_tests(round_name: str, model: str) -> tuple[str, ...]:
  """Compliance tests that a closed result needs besides."""
  if rounds.MODELS.get(model) != rounds.BERT:
    return ()
  return ('TEST01',) if _at_least(round_name, 'v5.0') else ('TEST01', 'TEST05')


def results_hold_all(round_name: str) -> bool:
  """Whether measurements and compliance lie among the results (from v6.0)."""
  return _at_least(round_name, 'v6.0')


def needs_mlperf_conf(round_name: str) -> bool:
  """Whether LoadGen's mlperf.conf lies beside user.conf (until v4.1)."""
  return not _at_least(round_name, 'v5.0')


def needs_calibration(round_name: str, division: str) -> bool:
  """Whether calibration.md must be there."""
  return is_closed(division) and _at_least(round_name, 'v5.1')


def takes_short_runs(round_name: str) -> bool:
  """Whether its checker takes open runs below ten minutes (until v4.0)."""
  return not _at_least(round_name, 'v4.1')


def takes_parts_of_the_set(round_name: str) -> bool:
  """Whether open accuracy runs need not cover the whole set (until v5.1)."""
  return not _at_least(round_name, 'v6.0')


def needs_samples_per_query(round_name: str, division: str) -> bool:
  """Whether Offline must ask for the whole set or more at once."""
  return is_closed(division) or not _at_least(round_name, 'v6.0')


def _at_least(round_name: str, other: str) -> bool:
  names = list(rounds.ROUNDS)
  return names.index(round_name) >= names.index(other)
