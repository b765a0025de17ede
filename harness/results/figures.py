"""The figures of a run as entries keep them, from what LoadGen and we logged.

The keys are those of mlperf_log_detail.txt, which have been the same since v3.1
of LoadGen, while the words of its summary changed ("90th percentile latency",
"90.0th percentile latency").
"""

import ast
from collections.abc import Mapping, Sequence
import os

from harness.loadgen import loadgen_log
from harness.loadgen import timeline
from harness.results import entry
from harness.rules import rounds

# Named here as well as in scoring.py, which brings ROUGE's libraries along.
_ACCURACY_FILE = 'accuracy.txt'

# Percentiles as LoadGen names them in its keys.
PERCENTILES = ('50.00', '90.00', '95.00', '97.00', '99.00', '99.90')

SAMPLES_PER_SECOND = 'samples_per_second'
QUERIES_PER_SECOND = 'queries_per_second'
LATENCY_NS = 'latency_ns'

# Percentile of the latency that is the figure of a scenario.
JUDGED = {rounds.SINGLE_STREAM: '90.00', rounds.MULTI_STREAM: '99.00'}

# LoadGen's bound of that percentile, with 99 % confidence; 0 where the run had
# too few queries. It is the figure of an official result.
_EARLY_STOPPING = {
  rounds.SINGLE_STREAM: 'early_stopping_latency_ss',
  rounds.MULTI_STREAM: 'early_stopping_latency_ms',
}

# A query of the MultiStream scenario ends with the last of its samples.
_PERCENTILE_KEY = 'result_{}_percentile_latency_ns'
_QUERY_PERCENTILE_KEY = 'result_{}_percentile_per_query_latency_ns'


def performance(
  directory: str, scenario: str, timeline_path: str | None = None
) -> entry.Performance:
  """The figures of a performance run.

  Args:
    directory: of LoadGen's logs.
    scenario: LoadGen's name of it.
    timeline_path: times of every sample; None where nobody wrote them.

  Raises:
    OSError: a file cannot be read.
    ValueError: a file is not what it should be, or of another kind of run.
  """
  log = loadgen_log.read(directory)
  found = log.values.get('effective_scenario')
  if found != scenario:
    raise ValueError(
      f'{directory} has the logs of a run in scenario {found}, not {scenario}'
    )
  if 'result_validity' not in log.values:
    raise ValueError(
      f'{directory} has the logs of no performance run that ended'
    )
  latency = _latency(log, scenario)
  metric, value = _figure(log, scenario, latency)
  times = timeline.read(timeline_path) if timeline_path else []
  queries = int(number(log, 'result_query_count'))
  return entry.Performance(
    valid=log.valid,
    metric=metric,
    value=value,
    seconds=log.seconds,
    # Whole passes over the set may be more than LoadGen's settings ask for.
    samples=len(times)
    or queries * int(number(log, 'effective_samples_per_query')),
    tokens_per_second=_tokens_per_second(times),
    latency_ns=latency,
    first_token_ns=_first_token(times),
    early_stopping_ns=_early_stopping(log, scenario),
    summary=log.summary,
  )


def accuracy(
  directory: str,
  reference: Mapping[str, float] | None = None,
  identical: int = 0,
  passed: bool = True,
) -> entry.Accuracy:
  """The figures of an accuracy run that was scored.

  Args:
    directory: of LoadGen's logs and accuracy.txt.
    reference: see entry.Accuracy, as `identical` and `passed`.

  Raises:
    OSError: a file cannot be read.
    ValueError: a file is not what it should be.
  """
  line, metrics = read_score(os.path.join(directory, _ACCURACY_FILE))
  return entry.Accuracy(
    metrics=metrics,
    line=line,
    reference=reference,
    identical=identical,
    passed=passed,
    seconds=loadgen_log.read(directory).seconds,
  )


def read_score(path: str) -> tuple[str, dict[str, float]]:
  """The line of an accuracy.txt that holds the figures, and those figures.

  Raises:
    OSError: the file cannot be read.
    ValueError: it has no such line.
  """
  with open(path, encoding='utf-8') as file:
    lines = file.read().splitlines()
  for line in lines:
    if not line.startswith('{'):
      continue
    try:
      metrics = ast.literal_eval(line)
      return line, {str(k): _plain(v) for k, v in metrics.items()}
    except (AttributeError, SyntaxError, TypeError, ValueError) as error:
      raise ValueError(f'{path} has no figures in {line!r}') from error
  raise ValueError(
    f'{path} has no line of figures, such as {{"rouge1": 42.9}}; score the run'
    ' again'
  )


def number(log: loadgen_log.RunLog, key: str) -> float:
  """A number of LoadGen's detail log.

  Raises:
    ValueError: there is none of that key.
  """
  value = log.values.get(key)
  if isinstance(value, bool) or not isinstance(value, int | float):
    raise ValueError(
      f'{log.directory}/{loadgen_log.DETAIL_LOG} has no number {key}'
    )
  return value


def _plain(value: object) -> float:
  if not isinstance(value, int | float):
    raise TypeError(f'{value!r} is no number')
  return value


def latency_key(percentile: str, scenario: str) -> str:
  """Returns the detail log's key of a percentile, such as "90.00"."""
  if scenario == rounds.MULTI_STREAM:
    return _QUERY_PERCENTILE_KEY.format(percentile)
  return _PERCENTILE_KEY.format(percentile)


def _latency(log: loadgen_log.RunLog, scenario: str) -> dict[str, float]:
  return {
    each: number(log, latency_key(each, scenario)) for each in PERCENTILES
  }


def _figure(
  log: loadgen_log.RunLog, scenario: str, latency: Mapping[str, float]
) -> tuple[str, float]:
  if scenario == rounds.OFFLINE:
    return SAMPLES_PER_SECOND, number(log, 'result_samples_per_second')
  if scenario == rounds.SERVER:
    return QUERIES_PER_SECOND, number(log, 'result_completed_samples_per_sec')
  return LATENCY_NS, latency[JUDGED[scenario]]


def _early_stopping(log: loadgen_log.RunLog, scenario: str) -> float | None:
  key = _EARLY_STOPPING.get(scenario)
  return (number(log, key) or None) if key else None


def _tokens_per_second(times: Sequence[timeline.Times]) -> float | None:
  tokens = sum(each.tokens for each in times)
  if not tokens:
    return None
  return tokens / max(each.done for each in times)


def _first_token(times: Sequence[timeline.Times]) -> dict[str, float]:
  waits = sorted(
    each.first_token - each.issued
    for each in times
    if each.first_token is not None
  )
  if not waits:
    return {}
  # The rule of LoadGen's own percentiles (loadgen/results.cc).
  return {
    each: round(1e9 * waits[int(len(waits) * float(each) / 100)])
    for each in PERCENTILES
  }
