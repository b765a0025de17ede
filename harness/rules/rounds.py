"""The scenarios, benchmarks and rounds of MLPerf Inference, as LoadGen has them.

Source of what differs between rounds: loadgen/mlperf.conf (until v4.0
mlperf.conf) of mlcommons/inference at the tags v3.1 to v5.1, and at LoadGen
6.0.8 for v6.0 and 6.0.17 for v6.1. The installed LoadGen has the settings of one
round, so these are set for every run. `requirements` has the rules for what is
submitted.
"""

from collections.abc import Mapping
import dataclasses
import re

GPTJ = 'gptj'
BERT = 'bert'
BENCHMARKS = (GPTJ, BERT)

# Benchmark of each model, by the name of the model as it is submitted.
MODELS = {
  'gptj-99': GPTJ,
  'gptj-99.9': GPTJ,
  'bert-99': BERT,
  'bert-99.9': BERT,
}

# Samples of the benchmark's whole set, which closed runs must hold.
FULL_SET = {GPTJ: 13368, BERT: 10833}

# Latency bound of the Server scenario in ms, the same in all rounds.
SERVER_LATENCY_MS = {GPTJ: 20_000, BERT: 130}

# Shortest performance run in ms, the same in all rounds and scenarios.
MIN_DURATION_MS = 600_000

OFFLINE = 'Offline'
SERVER = 'Server'
SINGLE_STREAM = 'SingleStream'
MULTI_STREAM = 'MultiStream'

# Samples of a MultiStream query, and its fewest queries.
MULTI_STREAM_SAMPLES = 8
MULTI_STREAM_MIN_QUERIES = 662


@dataclasses.dataclass(frozen=True)
class Scenario:
  """How LoadGen asks in a scenario, and which figure it measures.

  Source: loadgen/test_settings.h, results.cc and early_stopping.cc of
  mlcommons/inference.

  Attributes:
    name: LoadGen's name of the scenario.
    metric: The kind of figure in results: samples_per_second,
      queries_per_second, or latency_ns, of which less is better.
    unit: The unit of the figure as people read it.
    percentile: The percentile of the latency that the scenario judges.
    figure_key: The key of the figure in LoadGen's detail log; of a latency,
      that of the percentile.
    official_key: The key of the figure that official results show: of a
      latency, the estimate of LoadGen's early stopping.
    min_queries: The fewest queries of a closed run, which are LoadGen's own
      defaults; None: the samples of the whole set.
    enough_queries: Queries that early stopping can call valid: with none above
      the bound, they show the percentile with 99 % confidence. That takes 64
      queries at the 90th, 459 at the 99th (512 is a round number above) and 662 at the 99th of MultiStream.
      0: no percentile decides.
    samples_per_query: The samples of a query; 0: as many as there are.
  """

  name: str
  metric: str
  unit: str
  percentile: str
  figure_key: str
  official_key: str
  min_queries: int | None = 100
  enough_queries: int = 0
  samples_per_query: int = 1

  @property
  def streams(self) -> bool:
    """True if a query follows the answer to another, and latency counts."""
    return self.metric == 'latency_ns'

  @property
  def at_once(self) -> bool:
    """True if LoadGen issues all samples in one query, with no bound."""
    return not self.samples_per_query

  @property
  def bounded(self) -> bool:
    """True if queries arrive at a rate, and a bound on the latency holds."""
    return not (self.streams or self.at_once)

  @property
  def target(self) -> str:
    """LoadGen's setting for the expected speed."""
    return 'target_latency' if self.streams else 'target_qps'

  @property
  def needs_target(self) -> bool:
    """True if nothing can run before the speed of the system is known."""
    return not self.at_once

  @property
  def rank(self) -> str:
    """The judged percentile in words, such as 99th."""
    return f'{float(self.percentile):g}th'

  @property
  def what(self) -> str:
    """What has a latency: a query that holds several samples, or a sample."""
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


SCENARIOS: Mapping[str, Scenario] = {
  each.name: each
  for each in (
    Scenario(
      OFFLINE,
      'samples_per_second',
      'samples/s',
      '99.00',
      'result_samples_per_second',
      'result_samples_per_second',
      min_queries=None,
      samples_per_query=0,
    ),
    Scenario(
      SERVER,
      'queries_per_second',
      'queries/s',
      '99.00',
      'result_completed_samples_per_sec',
      'result_completed_samples_per_sec',
      enough_queries=512,
    ),
    Scenario(
      SINGLE_STREAM,
      'latency_ns',
      'ms',
      '90.00',
      'result_90.00_percentile_latency_ns',
      'early_stopping_latency_ss',
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
  """A round.

  Attributes:
    name: The name, such as "v4.0".
    qsl_seed: The seed that chooses which samples are loaded.
    sample_seed: The seed that chooses the order of samples.
    schedule_seed: The seed that chooses when Server queries arrive.
    equal_issue: The scenarios of GPT-J in which every sample must be issued as
      often as any other (sample_concatenate_permutation).
    offline_min_queries: The fewest samples of an Offline run; None: those of
      the whole set.
    test05_seeds: The three seeds of the compliance test TEST05; None: the
      round has no such test. Source: compliance/nvidia/TEST05/audit.config.
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

  def must_issue_equally(self, benchmark: str, scenario: str) -> bool:
    """Returns True if every sample must be issued as often as any other."""
    return benchmark == GPTJ and scenario in self.equal_issue

  def min_queries(self, benchmark: str, scenario: str) -> int:
    """Returns the fewest queries of a closed run; of Offline, samples."""
    return (
      SCENARIOS[scenario].min_queries
      or self.offline_min_queries
      or FULL_SET[benchmark]
    )


def named_seeds(qsl: int, sample: int, schedule: int) -> dict[str, int]:
  """Returns seeds by LoadGen's names of their settings."""
  return {
    'qsl_rng_seed': qsl,
    'sample_index_rng_seed': sample,
    'schedule_rng_seed': schedule,
  }


ROUNDS = {
  each.name: each
  for each in (
    Round(
      'v3.1',
      148687905518835231,
      520418551913322573,
      811580660758947900,
      equal_issue=(SINGLE_STREAM,),
      offline_min_queries=24576,
      test05_seeds=(
        793197339507417767,
        255610748586851044,
        352213341366340113,
      ),
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

# The last round, and the last that has GPT-J.
LATEST = 'v6.1'
LAST_OF_GPTJ = 'v5.0'

# The last whose checker only logs that a run was shorter than 600 s.
SHORT_RUNS = 'v4.0'

_SEED = re.compile(r'^\s*\*\.\*\.qsl_rng_seed\s*=\s*(\d+)\s*$', re.MULTILINE)


def round_of(path: str) -> str:
  """Returns the name of the round whose seeds an mlperf.conf has.

  Raises:
    OSError: The file cannot be read.
    ValueError: The file has no seed, or that of no known round.
  """
  with open(path, encoding='utf-8') as file:
    match = _SEED.search(file.read())
  if match is None:
    raise ValueError(
      f'{path} has no line "*.*.qsl_rng_seed = ..."; give the mlperf.conf of a'
      ' round, or --round'
    )
  for each in ROUNDS.values():
    if each.qsl_seed == int(match[1]):
      return each.name
  raise ValueError(
    f'{path} has the seed {match[1]}, which is of none of the rounds'
    f' {", ".join(ROUNDS)}'
  )
