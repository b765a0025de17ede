"""Checks that the logs of a performance run are consistent.

LoadGen writes most figures twice: for people to mlperf_log_summary.txt, and for
programs to mlperf_log_detail.txt. The official checkers read only the second
file, so they accept a figure that was edited there.
"""

from collections.abc import Iterator, Mapping
import functools
import itertools
import math
import re

from harness.benchmarks import benchmark as benchmark_lib
from harness.loadgen import loadgen_log
from harness.results import figures
from harness.rules import rounds

_ROW = re.compile(r'^[ *]*(\w[\w./() ]*?)\s*:\s*(\S.*?)\s*$', re.MULTILINE)
_ESTIMATE = re.compile(r'Early stopping (\d+)\S* percentile estimate: (\d+)')
_PERCENTILE = re.compile(r'([\d.]+)(?:th)? percentile latency \(ns\)')
_EXTREME = re.compile(r'(Min|Max|Mean) latency \(ns\)')
_FIRST_TOKEN = re.compile(
  r'([\d.]+)(?:th first token)? percentile (?:first token )?latency \(ns\)'
)
_OUTPUT_TOKEN = re.compile(r'([\d.]+) percentile time to output token \(ns\)')
_VALIDITY = 'result_validity'
# The key of the early-stopping estimate, by percentile.
_ESTIMATES = {
  f'{float(rules.percentile):g}': rules.official_key
  for rules in rounds.SCENARIOS.values()
  if rules.streams
}

# Keys of the detail log with percentiles of the latencies of tokens, and with
# the limits of the run.
_TTFT, _TPOT = figures.FIRST_TOKEN[0], figures.PER_TOKEN[0]
TOKEN_LIMITS = (
  'requested_server_ttft_latency',
  'requested_server_tpot_latency',
)

# Keys of the detail log, by their label in the summary. Labels that are missing
# here are names of settings; see `_key`.
_KEYS = {
  'SUT name': 'sut_name',
  'Mode': 'effective_test_mode',
  'Scenario': 'effective_scenario',
  'Result is': _VALIDITY,
  'Performance constraints satisfied': 'result_perf_constraints_met',
  'Min duration satisfied': 'result_min_duration_met',
  'Min queries satisfied': 'result_min_queries_met',
  'Early stopping satisfied': 'early_stopping_met',
  'Samples per second': 'result_samples_per_second',
  'Scheduled samples per second': 'result_scheduled_samples_per_sec',
  'Completed samples per second': 'result_completed_samples_per_sec',
  'QPS w/ loadgen overhead': 'result_qps_with_loadgen_overhead',
  'QPS w/o loadgen overhead': 'result_qps_without_loadgen_overhead',
  'Tokens per second': rounds.SCENARIOS[rounds.OFFLINE].tokens_key,
  'Completed tokens per second': rounds.SCENARIOS[rounds.SERVER].tokens_key,
  'ttft_latency (ns)': TOKEN_LIMITS[0],
  'tpot_latency (ns)': TOKEN_LIMITS[1],
}
_WORDS = {True: ('yes', 'true', '1'), False: ('no', 'false', '0')}

# The summary shows rates with at least two decimals and five digits.
_DIGITS = 1e-4
_DECIMALS = 0.006

# The tolerance between a run's figure and its samples per second: 2 %, plus two
# units of the log's clock, which counts milliseconds.
_MARGIN = 0.02
_CLOCK_SECS = 0.002

# The limit of LoadGen's overhead in a stream: 1 ms per query, plus half of the
# run.
_OVERHEAD_SECS = 0.001
_OVERHEAD = 0.5


def problems(
  log: loadgen_log.RunLog,
  benchmark: benchmark_lib.Benchmark,
  scenario: str,
  name: str,
) -> Iterator[str]:
  """Yields the contradictions in the logs of a performance run.

  Args:
    log: The logs.
    benchmark: The benchmark.
    scenario: The name of the scenario.
    name: The name of the run in messages.
  """
  rules = rounds.SCENARIOS.get(scenario)
  if rules is None:
    return  # The caller reports this.
  values = log.values
  rows = list(summary_rows(log.summary, scenario))
  for key, shown in rows:
    if key in values and not _equal(shown, values[key]):
      yield (
        f'{name}: {loadgen_log.SUMMARY_LOG} shows {key} as {shown}, but'
        f' {loadgen_log.DETAIL_LOG} has {values[key]}. Submit both logs as'
        ' LoadGen wrote them.'
      )
  official = benchmark.official_key(scenario)
  absent = {_VALIDITY, official} - {key for key, _ in rows}
  for key in sorted(absent):
    if values.get(key):  # 0 means too few queries for an estimate.
      yield (
        f'{name}: {loadgen_log.SUMMARY_LOG} does not show {key}. Submit the'
        ' log as LoadGen wrote it.'
      )
  if values.get(_VALIDITY) != 'VALID':
    return  # The caller reports this. The log may be incomplete.
  texts = list(_order(values, benchmark, rules))
  try:
    texts += _times(log, rules)
    if benchmark.uses_tokens and not rules.streams:
      texts += _tokens(log, benchmark.search, official, rules.official_key)
  except ValueError as error:
    texts.append(str(error))
  for text in texts:
    yield f'{name}: {loadgen_log.DETAIL_LOG} contradicts itself: {text}'


def summary_rows(summary: str, scenario: str) -> Iterator[tuple[str, str]]:
  """Yields the detail log's key and the value of each line of a summary."""
  rules = rounds.SCENARIOS[scenario]
  # With token latencies, the second estimate of a percentile is of the time per
  # output token, which the detail log lacks.
  for percentile, value in dict(reversed(_ESTIMATE.findall(summary))).items():
    yield _ESTIMATES.get(percentile, ''), value
  for label, value in _ROW.findall(summary):
    yield _key(label, rules), value


def _key(label: str, rules: rounds.Scenario) -> str:
  """Returns the key of a label.

  For a line that is not a figure, the key exists in no log.
  """
  if match := _PERCENTILE.fullmatch(label):
    return rules.latency_key(f'{float(match[1]):.2f}')
  if match := _EXTREME.fullmatch(label):
    return rules.extreme_key(match[1].lower())
  for pattern, key in ((_FIRST_TOKEN, _TTFT), (_OUTPUT_TOKEN, _TPOT)):
    if match := pattern.fullmatch(label):
      return key.format(f'{float(match[1]):.2f}')
  setting = label.replace(' (', '_').rstrip(')')
  return _KEYS.get(label, f'effective_{setting}')


def _equal(shown: str, logged: object) -> bool:
  if isinstance(logged, bool):
    return shown.lower() in _WORDS[logged]
  if isinstance(logged, int) and shown.isdecimal():
    return int(shown) == logged
  if not isinstance(logged, int | float):
    return shown == str(logged)
  try:
    return math.isclose(
      float(shown), logged, rel_tol=_DIGITS, abs_tol=_DECIMALS
    )
  except ValueError:
    return False


def _order(
  values: Mapping[str, object],
  benchmark: benchmark_lib.Benchmark,
  rules: rounds.Scenario,
) -> Iterator[str]:
  """Yields pairs of latencies that are in the wrong order."""
  least, mean, most = map(rules.extreme_key, ('min', 'mean', 'max'))
  keys = [rules.latency_key(percentile) for percentile in figures.PERCENTILES]
  pairs = list(zip((least, *keys), (*keys, most)))
  pairs += [(least, mean), (mean, most)]
  if benchmark.uses_tokens:
    for key in (_TTFT, _TPOT):
      latencies = [key.format(percentile) for percentile in figures.PERCENTILES]
      pairs += itertools.pairwise(latencies)
    pairs += [
      (_TTFT.format(percentile), rules.latency_key(percentile))
      for percentile in figures.PERCENTILES
    ]
  elif rules.streams:
    pairs.append((rules.figure_key, rules.official_key))
  for low, high in pairs:
    if low in values and values.get(high):
      if float(str(values[low])) > float(str(values[high])):
        yield f'{low} is {values[low]}, but {high} is only {values[high]}.'


def _times(log: loadgen_log.RunLog, rules: rounds.Scenario) -> Iterator[str]:
  """Yields figures that contradict the duration of the run."""
  number = functools.partial(figures.number, log)
  seconds = log.seconds
  least = number('effective_min_duration_ms') / 1000
  if seconds + _CLOCK_SECS < least * (1 - _MARGIN):
    yield f'The run took {seconds:g} s, but its min_duration is {least:g} s.'
  queries = number('result_query_count')
  if rules.streams:
    mean_key = rules.extreme_key('mean')
    busy = queries * number(mean_key) / 1e9
    slack = _OVERHEAD * seconds + queries * _OVERHEAD_SECS + _CLOCK_SECS
    if not -_MARGIN * seconds - _CLOCK_SECS <= seconds - busy <= slack:
      yield (
        f'{queries:.0f} queries of {number(mean_key):.0f} ns ({mean_key}) take'
        f' {busy:g} s, but the run took {seconds:g} s.'
      )
    return
  key = rules.official_key
  samples = queries * number('generated_samples_per_query')
  rate = number(key)
  if abs(rate * seconds - samples) > (
    _MARGIN * samples + 1 + rate * _CLOCK_SECS
  ):
    yield (
      f'{key} is {rate:g}, but {samples:.0f} samples in {seconds:g} s are'
      f' {samples / max(seconds, _CLOCK_SECS):g} per second.'
    )


def _tokens(
  log: loadgen_log.RunLog,
  search: benchmark_lib.Search,
  tokens_key: str,
  samples_key: str,
) -> Iterator[str]:
  """Yields a rate of tokens that answers of valid lengths cannot have."""
  number = functools.partial(figures.number, log)
  tokens, samples = number(tokens_key), number(samples_key)
  count = number('result_query_count') * number('generated_samples_per_query')
  # In Server, LoadGen does not count one of the samples.
  margin = 1 + _MARGIN + 1 / max(count, 1)
  least, most = search.min_tokens, search.max_tokens
  if not samples * least / margin <= tokens <= samples * most * margin:
    yield (
      f'{tokens_key} is {tokens:g}, but {samples_key} is {samples:g}. Answers'
      f' have {least} to {most} tokens.'
    )
