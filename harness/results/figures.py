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

ACCURACY_FILE = 'accuracy.txt'

# Percentiles as LoadGen names them in its keys.
PERCENTILES = ('50.00', '90.00', '95.00', '97.00', '99.00', '99.90')

LATENCY_NS = 'latency_ns'


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
  rules = rounds.SCENARIOS[scenario]
  times = timeline.read(timeline_path) if timeline_path else []
  queries = int(number(log, 'result_query_count'))
  return entry.Performance(
    valid=log.valid,
    metric=rules.metric,
    value=number(log, rules.figure_key),
    seconds=log.seconds,
    # Whole passes over the set may be more than LoadGen's settings ask for.
    samples=len(times)
    or queries * int(number(log, 'effective_samples_per_query')),
    tokens_per_second=_tokens_per_second(times),
    latency_ns={
      each: number(log, rules.latency_key(each)) for each in PERCENTILES
    },
    first_token_ns=_first_token(times),
    # 0: the run had too few queries for LoadGen's estimate.
    early_stopping_ns=(number(log, rules.official_key) or None)
    if rules.streams
    else None,
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
  line, metrics = read_score(os.path.join(directory, ACCURACY_FILE))
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
