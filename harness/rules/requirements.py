"""Defines the requirements of MLPerf Inference on models and submissions.

They depend on the round. Source: tools/submission of mlcommons/inference at the
tags v3.1 to v5.1, and its package submission_checker of 2026 for v6.0 and v6.1.
The module `rounds` has the rounds' requirements on LoadGen itself.
"""

from collections.abc import Collection, Iterator, Mapping
import itertools

from harness.rules import rounds

OPEN = 'open'
CLOSED = 'closed'
NETWORK = 'network'
DIVISIONS = (OPEN, CLOSED, NETWORK)

DATACENTER = 'datacenter'
EDGE = 'edge'
CATEGORIES = (DATACENTER, EDGE)


# The figures of the reference models in float32, on the whole official sets.
# Source: accuracy-target of submission_checker.py.
REFERENCE: Mapping[str, Mapping[str, float]] = {
  rounds.GPTJ: {'rouge1': 42.9865, 'rouge2': 20.1235, 'rougeL': 29.9881},
  rounds.BERT: {'f1': 90.874},
  rounds.LLAMA: {
    'rouge1': 38.7792,
    'rouge2': 15.9075,
    'rougeL': 24.4957,
    'rougeLsum': 35.793,
  },
  rounds.LLAMA_EDGE: {
    'rouge1': 39.06,
    'rouge2': 16.1147,
    'rougeL': 24.6375,
    'rougeLsum': 36.124,
  },
}

# The share of the reference's figures that a model must reach, by the submitted
# name of the model.
SHARES = {
  name: 0.999 if name.endswith('-99.9') else 0.99 for name in rounds.MODELS
}

# The total number of characters in the reference's answers to the whole set.
_GEN_LEN = {
  rounds.GPTJ: 4_016_878,
  rounds.LLAMA: 8_167_644,
  rounds.LLAMA_EDGE: 3_051_113,
}

# The minimum figures on the whole official set, by the submitted name of the
# model. Answers need 90 % of the reference's characters for all shares.
ACCURACY: Mapping[str, Mapping[str, float]] = {
  model: {
    **{
      name: SHARES[model] * figure
      for name, figure in REFERENCE[benchmark].items()
    },
    **({'gen_len': 0.9 * _GEN_LEN[benchmark]} if benchmark in _GEN_LEN else {}),
  }
  for model, benchmark in rounds.MODELS.items()
}

# The maximum figures, for the models that have any. Source: acc-limit of
# submission_checker.py.
MOST: Mapping[str, Mapping[str, float]] = {
  model: {'gen_len': 1.1 * _GEN_LEN[benchmark]}
  for model, benchmark in rounds.MODELS.items()
  if benchmark in rounds.LLAMAS
}

# The maximum allowed difference between the figures of two float32 runs of one
# model that add sums in different orders. This is a rule of our harness, with
# ROUGE in points and F1 in percent.
FLOAT32_TOLERANCE = dict.fromkeys(rounds.BENCHMARKS, 0.01) | {rounds.BERT: 0.05}

# The maximum allowed difference between the scores of TEST01 and of the
# accuracy run, in percent.
TEST_PERCENT: Mapping[str, float] = {'bert-99': 1.0, 'bert-99.9': 0.1}

_STREAM = (rounds.SINGLE_STREAM, rounds.OFFLINE)
_SERVED = (rounds.SERVER, rounds.OFFLINE)
_ONLINE = (rounds.SERVER, rounds.INTERACTIVE)

# The keys of LoadGen's detail log with the official figures of a benchmark with
# token latencies.
_TOKEN_KEYS = {
  rounds.OFFLINE: 'result_tokens_per_second',
  rounds.SERVER: 'result_completed_tokens_per_second',
  rounds.INTERACTIVE: 'result_completed_tokens_per_second',
  # The estimate of early stopping is that of the first token.
  rounds.SINGLE_STREAM: 'result_90.00_percentile_latency_ns',
}


# Text that the name of a system must contain if LoadGen reaches it over a
# network.
NETWORK_SUT = 'Network SUT'


def missed(
  model: str, metrics: Mapping[str, float | None]
) -> Iterator[tuple[str, float, str]]:
  """Yields the figures of the whole official set that are out of bounds.

  Args:
    model: The submitted name of the model.
    metrics: The figures by name. Missing ones are skipped.

  Yields:
    The name of a figure, the figure, and its bound such as "at least 89.96526".
  """
  for name, least in ACCURACY.get(model, {}).items():
    value = metrics.get(name)
    if value is not None and value < least:
      yield name, value, f'at least {least:.10g}'
  for name, most in MOST.get(model, {}).items():
    value = metrics.get(name)
    if value is not None and value > most:
      yield name, value, f'at most {most:.10g}'


def is_closed(division: str) -> bool:
  """Returns True if the rules of the closed division apply to a division.

  The Network division inherits all of them. Source: inference_rules.adoc of
  mlcommons/inference_policies, "Network Division".
  """
  return division in (CLOSED, NETWORK)


def official_key(benchmark: str, scenario: str) -> str:
  """Returns the detail log's key of the figure in official results."""
  if rounds.uses_tokens(benchmark):
    return _TOKEN_KEYS[scenario]
  return rounds.SCENARIOS[scenario].official_key


def lacking(
  found: Collection[str], round_name: str, category: str, model: str
) -> tuple[str, ...]:
  """Returns the scenarios that a closed submission of a model still needs.

  All scenarios of the category are required, except that Llama in a datacenter
  needs Offline and either Server or Interactive.

  Args:
    found: The scenarios of the submission.
    round_name: The round.
    category: The category.
    model: The submitted name of the model.
  """
  known = scenarios(round_name, category, model)
  one_of = _ONLINE if rounds.INTERACTIVE in known else ()
  missing = tuple(each for each in known if each not in (*found, *one_of))
  if one_of and not any(each in found for each in one_of):
    missing += (' or '.join(one_of),)
  return missing


def scenarios(round_name: str, category: str, model: str) -> tuple[str, ...]:
  """Returns the scenarios that a round has for a model in a category.

  Returns:
    LoadGen's names of the scenarios, or an empty tuple if the round does not
    have the model in the category. For "datacenter,edge", the scenarios of both
    categories.
  """
  if ',' in category:
    both = (scenarios(round_name, each, model) for each in category.split(','))
    return tuple(dict.fromkeys(itertools.chain(*both)))
  if model not in rounds.MODELS:
    return ()
  if rounds.MODELS[model] == rounds.GPTJ:
    if rounds.is_at_least(round_name, 'v5.1'):
      return ()
  elif rounds.MODELS[model] in rounds.LLAMAS:
    own = EDGE if rounds.MODELS[model] == rounds.LLAMA_EDGE else DATACENTER
    if category != own or not rounds.is_at_least(
      round_name, rounds.FIRST_OF_LLAMA
    ):
      return ()
    return _STREAM if own == EDGE else (rounds.OFFLINE, *_ONLINE)
  elif category == DATACENTER and rounds.is_at_least(round_name, 'v5.0'):
    return ()
  elif model == 'bert-99.9' and category == EDGE:
    if not rounds.is_at_least(round_name, 'v5.0'):
      return ()
  return _SERVED if category == DATACENTER else _STREAM


def rounds_of(category: str, model: str) -> tuple[str, ...]:
  """Returns the rounds that have a model in a category."""
  return tuple(
    name for name in rounds.ROUNDS if scenarios(name, category, model)
  )


def compliance_tests(round_name: str, model: str) -> tuple[str, ...]:
  """Returns the compliance tests that a closed result requires."""
  if rounds.MODELS.get(model) == rounds.LLAMA:
    return ('TEST06',)
  if rounds.MODELS.get(model) != rounds.BERT:
    return ()
  return (
    ('TEST01',)
    if rounds.is_at_least(round_name, 'v5.0')
    else ('TEST01', 'TEST05')
  )


def results_hold_all(round_name: str) -> bool:
  """Returns True if results have measurements and compliance (since v6.0)."""
  return rounds.is_at_least(round_name, 'v6.0')


def needs_mlperf_conf(round_name: str) -> bool:
  """Returns True if mlperf.conf must be next to user.conf (until v4.1)."""
  return not rounds.is_at_least(round_name, 'v5.0')


def needs_calibration(round_name: str, division: str) -> bool:
  """Returns True if the submission must have a calibration.md."""
  return is_closed(division) and rounds.is_at_least(round_name, 'v5.1')


def takes_short_runs(round_name: str) -> bool:
  """Returns True if open runs may be shorter than ten minutes (until v4.0)."""
  return not rounds.is_at_least(round_name, 'v4.1')


# The option of official checkers that accept an open accuracy run of a part of
# the set. Checkers of rounds until v5.1 need no option.
SKIP_SET_SIZE = '--skip-dataset-size-check'


def takes_parts_of_the_set(round_name: str) -> bool:
  """Returns True if open accuracy runs may use part of the set (until v5.1)."""
  return not rounds.is_at_least(round_name, 'v6.0')


def needs_samples_per_query(round_name: str, division: str) -> bool:
  """Returns True if an Offline query must have at least the whole set."""
  return is_closed(division) or not rounds.is_at_least(round_name, 'v6.0')
