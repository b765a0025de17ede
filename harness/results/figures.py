"""Computes the figures of entries from LoadGen's logs and the timeline.

The code reads the keys of mlperf_log_detail.txt, which are the same since
LoadGen v3.1. The text of the summary differs between versions: "90th percentile
latency" or "90.0th percentile latency".
"""

from collections.abc import Mapping, Sequence
import dataclasses

from harness.loadgen import loadgen_log
from harness.results import entry
from harness.rules import rounds

ACCURACY_FILE = 'accuracy.txt'

# The percentiles in the form that LoadGen uses in its keys.
PERCENTILES = ('50.00', '90.00', '95.00', '97.00', '99.00', '99.90')

LATENCY_NS = 'latency_ns'

# The percentile of token latencies that has a bound.
_BOUNDED = '99.00'
# LoadGen's keys of token latencies: percentile and mean.
FIRST_TOKEN = (
  'result_first_token_{}_percentile_latency_ns',
  'result_first_token_mean_latency_ns',
)
PER_TOKEN = (
  'result_time_per_output_token_{}_percentile_ns',
  'result_time_to_output_token_mean',
)
_TOKENS_PER_SECOND = (
  'result_tokens_per_second',
  'result_completed_tokens_per_second',
)


@dataclasses.dataclass(frozen=True)
class TokenLatency:
  """A latency of tokens in a run.

  Attributes:
    name: The name of the latency.
    abbreviation: The usual abbreviation of the name.
    percentiles_ns: Its percentiles in ns, by percentile.
    mean_ns: Its mean in ns.
    limit_ms: The bound on the 99th percentile in ms; None if there is none.
  """

  name: str
  abbreviation: str
  percentiles_ns: Mapping[str, float]
  mean_ns: float
  limit_ms: float | None

  @property
  def bounded_ms(self) -> float:
    """The percentile that has the bound, in ms."""
    return self.percentiles_ns[_BOUNDED] / 1e6

  @property
  def problem(self) -> str | None:
    """The reason why the run misses the bound; None if it does not.

    As in the official checker, a latency that equals the limit misses it.
    """
    if self.limit_ms is None or self.bounded_ms < self.limit_ms:
      return None
    return (
      f'the 99th percentile of the {self.name} ({self.abbreviation}) is'
      f' {self.bounded_ms:.3f} ms, but must be less than {self.limit_ms:g}'
      ' ms. Lower --target_qps, or let --mode=find_performance search the rate'
    )


def token_latencies(
  log: loadgen_log.RunLog, limits: rounds.TokenLimits | None = None
) -> list[TokenLatency]:
  """Returns the latencies of tokens that LoadGen measured in a run, if any.

  Args:
    log: The log of a performance run.
    limits: The bounds on them; None: there are none.

  Raises:
    ValueError: There are bounds, but the log has no such latencies.
  """
  if limits is None and FIRST_TOKEN[1] not in log.values:
    return []
  return [
    TokenLatency(
      name,
      short,
      {p: number(log, keys[0].format(p)) for p in PERCENTILES},
      number(log, keys[1]),
      limit,
    )
    for name, short, keys, limit in (
      (
        'time to the first token',
        'TTFT',
        FIRST_TOKEN,
        limits.ttft_ms if limits else None,
      ),
      (
        'time per output token',
        'TPOT',
        PER_TOKEN,
        limits.tpot_ms if limits else None,
      ),
    )
  ]


def over_limits(
  log: loadgen_log.RunLog, limits: rounds.TokenLimits | None
) -> list[str]:
  """Returns the reasons why a run misses the bounds on token latencies.

  The bounds are those of the rules, whatever LoadGen's settings were.

  Raises:
    ValueError: There are bounds, but the log has no such latencies.
  """
  latencies = token_latencies(log, limits) if limits else []
  return [latency.problem for latency in latencies if latency.problem]


def logged_tokens_per_second(log: loadgen_log.RunLog) -> float | None:
  """Returns the rate of tokens that LoadGen measured; None if it did not."""
  values = (log.values.get(key) for key in _TOKENS_PER_SECOND)
  return next((v for v in values if isinstance(v, int | float)), None)


def performance(
  directory: str, scenario: str, timeline_path: str | None = None
) -> entry.Performance:
  """Returns the figures of a performance run.

  Args:
    directory: The directory of LoadGen's logs.
    scenario: LoadGen's name of the scenario.
    timeline_path: The file with the times of every sample, or None if there is
      none.

  Raises:
    OSError: A file cannot be read.
    ValueError: A file is malformed, or belongs to another kind of run.
  """
  log = loadgen_log.read(directory)
  logged = log.values.get('effective_scenario')
  if logged != rounds.SCENARIOS[scenario].loadgen_name:
    raise ValueError(
      f'{directory} has the logs of a run in scenario {logged}, not {scenario}'
    )
  if 'result_validity' not in log.values:
    raise ValueError(f'{directory} has no logs of a performance run that ended')
  rules = rounds.SCENARIOS[scenario]
  times = loadgen_log.read_timeline(timeline_path) if timeline_path else []
  tokens = token_latencies(log)
  first, rest = tokens or (None, None)
  queries = int(number(log, 'result_query_count'))
  return entry.Performance(
    valid=log.valid,
    metric=rules.metric,
    value=number(log, rules.figure_key),
    seconds=log.seconds,
    # A run issues whole passes over the set, so it can have more samples than
    # LoadGen's settings ask for.
    samples=len(times)
    or queries * int(number(log, 'effective_samples_per_query')),
    tokens_per_second=logged_tokens_per_second(log)
    or _tokens_per_second(times),
    latency_ns={p: number(log, rules.latency_key(p)) for p in PERCENTILES},
    first_token_ns=first.percentiles_ns if first else _first_token(times),
    per_token_ns=rest.percentiles_ns if rest else {},
    mean_first_token_ns=first.mean_ns if first else None,
    mean_per_token_ns=rest.mean_ns if rest else None,
    # LoadGen logs 0 if the run had too few queries for an estimate. If it
    # measures tokens, its estimate is that of first tokens, and the official
    # figure is the percentile itself.
    early_stopping_ns=(number(log, rules.official_key) or None)
    if rules.streams and not tokens
    else None,
    summary=log.summary,
  )


def number(log: loadgen_log.RunLog, key: str) -> float:
  """Returns a number from LoadGen's detail log.

  Raises:
    ValueError: The log has no number with this key.
  """
  value = log.values.get(key)
  if isinstance(value, bool) or not isinstance(value, int | float):
    raise ValueError(
      f'{log.directory}/{loadgen_log.DETAIL_LOG} has no number {key}'
    )
  return value


def _tokens_per_second(times: Sequence[loadgen_log.Times]) -> float | None:
  tokens = sum(sample.tokens for sample in times)
  if not tokens:
    return None
  return tokens / max(sample.done for sample in times)


def _first_token(times: Sequence[loadgen_log.Times]) -> dict[str, float]:
  waits = sorted(
    sample.first_token - sample.issued
    for sample in times
    if sample.first_token is not None
  )
  if not waits:
    return {}
  # LoadGen computes its percentiles in the same way (loadgen/results.cc).
  return {
    p: round(1e9 * waits[int(len(waits) * float(p) / 100)]) for p in PERCENTILES
  }
