"""What the rounds of MLPerf Inference ask of LoadGen, as their mlperf.conf says.

Source: loadgen/mlperf.conf (until v4.0 mlperf.conf) of mlcommons/inference at
the tags v3.1 to v5.1 and at 6.0.8 and 6.0.17 of LoadGen for v6.0 and v6.1. The
LoadGen that is installed brings the settings of one round; whatever differs in
another is here, and is set for every run.
"""

import dataclasses

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

OFFLINE = 'Offline'
SERVER = 'Server'
SINGLE_STREAM = 'SingleStream'
MULTI_STREAM = 'MultiStream'
SCENARIOS = (OFFLINE, SERVER, SINGLE_STREAM, MULTI_STREAM)

# Samples of the benchmark's whole set, which closed runs must hold.
FULL_SET = {GPTJ: 13368, BERT: 10833}

# Latency bound of the Server scenario in ms, the same in all rounds.
SERVER_LATENCY_MS = {GPTJ: 20_000, BERT: 130}

# Shortest performance run in ms, the same in all rounds and scenarios.
MIN_DURATION_MS = 600_000

# Samples of a MultiStream query, and its fewest queries.
MULTI_STREAM_SAMPLES = 8
MULTI_STREAM_MIN_QUERIES = 662


@dataclasses.dataclass(frozen=True)
class Round:
  """A round.

  Attributes:
    name: such as "v4.0".
    qsl_seed: chooses which samples are loaded.
    sample_seed: chooses the order of samples.
    schedule_seed: chooses when Server queries arrive.
    equal_issue: scenarios of GPT-J in which every sample must be issued as
      often as any other (sample_concatenate_permutation).
    offline_min_queries: fewest samples of an Offline run, by benchmark.
  """

  name: str
  qsl_seed: int
  sample_seed: int
  schedule_seed: int
  equal_issue: tuple[str, ...] = SCENARIOS
  offline_min_queries: int | None = None

  @property
  def seeds(self) -> dict[str, int]:
    """The seeds by LoadGen's names of their settings."""
    return {
      'qsl_rng_seed': self.qsl_seed,
      'sample_index_rng_seed': self.sample_seed,
      'schedule_rng_seed': self.schedule_seed,
    }

  def must_issue_equally(self, benchmark: str, scenario: str) -> bool:
    """Whether every sample must be issued as often as any other."""
    return benchmark == GPTJ and scenario in self.equal_issue

  def min_queries(self, benchmark: str, scenario: str) -> int:
    """The fewest queries of a closed performance run; Offline: samples."""
    if scenario == OFFLINE:
      return self.offline_min_queries or FULL_SET[benchmark]
    if scenario == MULTI_STREAM:
      return MULTI_STREAM_MIN_QUERIES
    # LoadGen's own defaults: early stopping decides how many are enough.
    return 100


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
    ),
    Round(
      'v4.0',
      13281865557512327830,
      198141574272810017,
      7575108116881280410,
      equal_issue=(SERVER, SINGLE_STREAM),
    ),
    Round(
      'v4.1', 3066443479025735752, 10688027786191513374, 14962580496156340209
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
