"""Defines the scenarios and rounds of MLPerf Inference.

Source of the differences between rounds: loadgen/mlperf.conf (until v4.0
mlperf.conf) of mlcommons/inference at the tags v3.1 to v5.1. For v6.0 it is the
file of LoadGen 6.0.8, and for v6.1 that of 6.0.17. The installed LoadGen has
the settings of only one round, so the harness sets them for every run. The
module `requirements` has the rules for submissions.
"""

from collections.abc import Mapping
import dataclasses
import re

# The shortest performance run in ms, the same in all rounds and scenarios.
MIN_DURATION_MS = 600_000

OFFLINE = 'Offline'
SERVER = 'Server'
INTERACTIVE = 'Interactive'
SINGLE_STREAM = 'SingleStream'
MULTI_STREAM = 'MultiStream'

# The number of samples of a MultiStream query, and the minimum number of
# queries.
MULTI_STREAM_SAMPLES = 8
MULTI_STREAM_MIN_QUERIES = 662


@dataclasses.dataclass(frozen=True)
class TokenLimits:
  """The bounds on the 99th percentiles of a benchmark with token latencies.

  Attributes:
    ttft_ms: The bound on the time to the first token, in ms.
    tpot_ms: The bound on the time per output token after the first, in ms.
  """

  ttft_ms: float
  tpot_ms: float


@dataclasses.dataclass(frozen=True)
class Scenario:
  """A scenario: LoadGen's way to issue queries, and the measured figure.

  Source: loadgen/test_settings.h, results.cc and early_stopping.cc of
  mlcommons/inference.

  Attributes:
    name: The name of the scenario in submissions.
    metric: The kind of figure in results: samples_per_second,
      queries_per_second, or latency_ns. A lower latency is better.
    unit: The unit of the figure in reports.
    percentile: The percentile of the latency that the scenario judges.
    figure_key: The key of the figure in LoadGen's detail log. For a latency, it
      is the key of the percentile.
    official_key: The key of the figure in official results. For a latency, it
      is the key of the estimate that LoadGen's early stopping makes.
    tokens_key: The key of the figure in official results of a benchmark with
      token latencies.
    min_queries: The minimum number of queries of a closed run, by LoadGen's
      defaults; None: the number of samples of the whole set.
    enough_queries: The number of queries after which early stopping can report
      a valid run; 0: no percentile decides. If all of them are within the
      bound, they confirm the percentile with 99 % confidence. The 90th
      percentile requires 64 queries. The 99th requires 459, and 512 is the next
      power of two. The 99th of MultiStream requires 662.
    samples_per_query: The number of samples of a query; 0: all samples.
    run_as: LoadGen's name of the scenario if it is another one.
  """

  name: str
  metric: str
  unit: str
  percentile: str
  figure_key: str
  official_key: str
  tokens_key: str = ''
  min_queries: int | None = 100
  enough_queries: int = 0
  samples_per_query: int = 1
  run_as: str = ''

  @property
  def loadgen_name(self) -> str:
    """LoadGen's name of the scenario."""
    return self.run_as or self.name

  @property
  def streams(self) -> bool:
    """True if queries are sent one after another and latency is the figure."""
    return self.metric == 'latency_ns'

  @property
  def at_once(self) -> bool:
    """True if LoadGen issues all samples in one query, with no bound."""
    return not self.samples_per_query

  @property
  def bounded(self) -> bool:
    """True if queries arrive at a rate, and their latency has a bound."""
    return not (self.streams or self.at_once)

  @property
  def target(self) -> str:
    """LoadGen's setting for the expected speed."""
    return 'target_latency' if self.streams else 'target_qps'

  @property
  def needs_target(self) -> bool:
    """True if a run requires an estimate of the system's speed."""
    return not self.at_once

  @property
  def rank(self) -> str:
    """The judged percentile in words, such as 99th."""
    return f'{float(self.percentile):g}th'

  @property
  def what(self) -> str:
    """The unit that a latency is measured for: "queries" or "samples"."""
    return 'queries' if self.samples_per_query > 1 else 'samples'

  def latency_key(self, percentile: str) -> str:
    """Returns the detail log's key of a percentile, such as "90.00"."""
    # A query of several samples ends with the last of them.
    query = 'per_query_' if self.samples_per_query > 1 else ''
    return f'result_{percentile}_percentile_{query}latency_ns'

  def extreme_key(self, name: str) -> str:
    """Returns the detail log's key of the min, max or mean latency."""
    query = 'query_' if self.samples_per_query > 1 else ''
    return f'result_{name}_{query}latency_ns'


_SERVER = Scenario(
  SERVER,
  'queries_per_second',
  'queries/s',
  '99.00',
  'result_completed_samples_per_sec',
  'result_completed_samples_per_sec',
  'result_completed_tokens_per_second',
  enough_queries=512,
)

SCENARIOS: Mapping[str, Scenario] = {
  part.name: part
  for part in (
    Scenario(
      OFFLINE,
      'samples_per_second',
      'samples/s',
      '99.00',
      'result_samples_per_second',
      'result_samples_per_second',
      'result_tokens_per_second',
      min_queries=None,
      samples_per_query=0,
    ),
    _SERVER,
    # Server with the shorter bounds of interactive use.
    dataclasses.replace(_SERVER, name=INTERACTIVE, run_as=SERVER),
    Scenario(
      SINGLE_STREAM,
      'latency_ns',
      'ms',
      '90.00',
      'result_90.00_percentile_latency_ns',
      'early_stopping_latency_ss',
      # The estimate of early stopping is that of the first token.
      'result_90.00_percentile_latency_ns',
      enough_queries=64,
    ),
    Scenario(
      MULTI_STREAM,
      'latency_ns',
      'ms',
      '99.00',
      'result_99.00_percentile_per_query_latency_ns',
      'early_stopping_latency_ms',
      min_queries=MULTI_STREAM_MIN_QUERIES,
      enough_queries=MULTI_STREAM_MIN_QUERIES,
      samples_per_query=MULTI_STREAM_SAMPLES,
    ),
  )
}


@dataclasses.dataclass(frozen=True)
class Round:
  """A round of MLPerf Inference.

  Attributes:
    name: The name, such as "v4.0".
    qsl_seed: The seed that selects the samples to load.
    sample_seed: The seed that selects the order of samples.
    schedule_seed: The seed that selects the arrival times of Server queries.
    equal_issue: The scenarios of generated text in which all samples must be
      issued equally often (sample_concatenate_permutation).
    offline_min_queries: The minimum number of samples of an Offline run; None:
      the number of samples of the whole set.
    test05_seeds: The three seeds of the compliance test TEST05; None: the round
      does not have the test. Source: compliance/nvidia/TEST05/audit.config.
  """

  name: str
  qsl_seed: int
  sample_seed: int
  schedule_seed: int
  equal_issue: tuple[str, ...] = tuple(SCENARIOS)
  offline_min_queries: int | None = None
  test05_seeds: tuple[int, int, int] | None = None

  @property
  def seeds(self) -> dict[str, int]:
    """The seeds by LoadGen's names of their settings."""
    return named_seeds(self.qsl_seed, self.sample_seed, self.schedule_seed)


def named_seeds(qsl: int, sample: int, schedule: int) -> dict[str, int]:
  """Returns seeds by LoadGen's names of their settings."""
  return {
    'qsl_rng_seed': qsl,
    'sample_index_rng_seed': sample,
    'schedule_rng_seed': schedule,
  }


ROUNDS = {
  part.name: part
  for part in (
    Round(
      'v3.1',
      148687905518835231,
      520418551913322573,
      811580660758947900,
      equal_issue=(SINGLE_STREAM,),
      offline_min_queries=24576,
      test05_seeds=(793197339507417767, 255610748586851044, 352213341366340113),
    ),
    Round(
      'v4.0',
      13281865557512327830,
      198141574272810017,
      7575108116881280410,
      equal_issue=(SERVER, SINGLE_STREAM),
      test05_seeds=(
        2376919268182438552,
        11176391829184272374,
        3911940905271271337,
      ),
    ),
    Round(
      'v4.1',
      3066443479025735752,
      10688027786191513374,
      14962580496156340209,
      test05_seeds=(
        16799458546791641818,
        5453809927556429288,
        5435552105434836064,
      ),
    ),
    Round(
      'v5.0', 6023615788873153749, 15036839855038426416, 9933818062894767841
    ),
    Round(
      'v5.1', 1780908523862526354, 14771362308971278857, 18209322760996052031
    ),
    Round(
      'v6.0', 2465351861681999779, 14276810075590677512, 3936089224930324775
    ),
    Round(
      'v6.1', 2085463073848966840, 2747215439041700203, 16159082839903944936
    ),
  )
}

FIRST = 'v3.1'
LATEST = 'v6.1'

# The latest round whose checker only logs a run that is shorter than 600 s.
SHORT_RUNS = 'v4.0'


def index(name: str) -> int:
  """Returns the position of a round in the order of time."""
  return list(ROUNDS).index(name)


def is_at_least(name: str, other: str) -> bool:
  """Returns True if a round is not before another one."""
  return index(name) >= index(other)


def is_between(name: str, first: str, last: str) -> bool:
  """Returns True if a round is one of those from `first` to `last`."""
  return index(first) <= index(name) <= index(last)


_SEED = re.compile(r'^\s*\*\.\*\.qsl_rng_seed\s*=\s*(\d+)\s*$', re.MULTILINE)


def round_of(path: str) -> str:
  """Returns the name of the round that has the seeds of an mlperf.conf.

  Raises:
    OSError: The file cannot be read.
    ValueError: The file has no seed, or the seed of an unknown round.
  """
  with open(path, encoding='utf-8') as file:
    match = _SEED.search(file.read())
  if match is None:
    raise ValueError(
      f'{path} has no line "*.*.qsl_rng_seed = ...". Pass the mlperf.conf of a'
      ' round, or --round.'
    )
  for rules in ROUNDS.values():
    if rules.qsl_seed == int(match[1]):
      return rules.name
  raise ValueError(
    f'{path} has the seed {match[1]}, but none of these rounds has it:'
    f' {", ".join(ROUNDS)}.'
  )
