"""Checks LoadGen's logs for every division."""

from collections.abc import Iterator
import math
import pathlib
import re
from typing import Any

from harness.loadgen import loadgen_log
from harness.results import entry as entry_lib
from harness.results import figures
from harness.results import job_result
from harness.rules import requirements
from harness.rules import rounds
from harness.submission import plan
from harness.submission.checks import consistency
from saxml_ext.common import files

_NS_PER_MS = 1_000_000

# The number of hexadecimal digits of a token in the accuracy log, an int32.
_TOKEN_DIGITS = 8


def accuracy(
  submission: plan.Submission, result: job_result.JobResult
) -> Iterator[str]:
  """Yields the problems of an accuracy run."""
  name, entry, log = result.name, result.entry, result.accuracy
  if log is None or entry.accuracy is None:
    yield f'{name} has no accuracy run. Use --mode=accuracy,performance.'
    return
  yield from _errors(log, name, 'accuracy')
  if not result.accuracy_text.is_file():
    yield f'{name} has no {result.accuracy_text.name}. Score its log again.'
    return
  text = result.accuracy_text.read_text(encoding='utf-8')
  shown = {
    metric: figure(text, metric)
    for metric in result.benchmark.least(entry.model)
  }
  if not requirements.is_closed(submission.division):
    # It needs data of nltk, and no checker requires it of open results.
    shown = {k: v for k, v in shown.items() if v or k != 'rougeLsum'}
  if unread := [metric for metric, value in shown.items() if value is None]:
    yield (
      f'{result.accuracy_text} lacks {", ".join(unread)} in the format that'
      ' the checkers read. Score the log again.'
    )
  for metric, value in shown.items():
    kept = entry.accuracy.metrics.get(metric)
    if value is not None and (
      kept is None or not math.isclose(kept, value, rel_tol=1e-6)
    ):
      yield (
        f'{name}: {result.accuracy_text.name} has {metric} {value:g}, but the'
        f' result has {kept}. Score the log again.'
      )


def covered(log: loadgen_log.RunLog) -> int:
  """Returns the number of samples in the set that a run used."""
  # Since v6.0, an accuracy run can be limited to a part of the set.
  keys = ('qsl_reported_total_count', 'effective_accuracy_sample_count')
  counts = [int(_number(log, key)) for key in keys if key in log.values]
  return min(counts, default=0)


def short_set(
  submission: plan.Submission, result: job_result.JobResult
) -> str | None:
  """Returns a note if an accuracy run covers too little for the checker.

  The option that the note names is passed to the checker; see `checker.run`.
  """
  log, full = result.accuracy, result.benchmark.full_set
  closed = requirements.is_closed(submission.division)
  if log is None or closed:  # Closed requires the whole set.
    return None
  if requirements.takes_parts_of_the_set(submission.round):
    return None
  count = covered(log)
  if count == full:
    return None
  return (
    f'{result.name}: The accuracy run has {count} samples, but the checker'
    f' of {submission.round} expects all {full} samples of the set. It accepts'
    f' an open result only with {requirements.SKIP_SET_SIZE}.'
  )


def int32(result: job_result.JobResult, path: pathlib.Path) -> Iterator[str]:
  """Yields a problem if answers have other than four bytes per token."""
  if not result.benchmark.uses_tokens:
    return
  wrong = [
    item['qsl_idx']
    for item in files.read_json(path, list[dict[str, Any]])
    if len(item['data']) != _TOKEN_DIGITS * item.get('token_count', -1)
  ]
  if wrong:
    yield (
      f'{path}: {len(wrong)} answers, such as that of sample {wrong[0]}, do not'
      ' have four bytes per token (int32).'
    )


def performance(
  submission: plan.Submission, result: job_result.JobResult
) -> Iterator[str]:
  """Yields the problems of a performance run."""
  name, entry, log = result.name, result.entry, result.performance
  if log is None:
    yield f'{name} has no performance run. Use --mode=accuracy,performance.'
    return
  yield from _errors(log, name, 'performance')
  validity = log.values.get('result_validity')
  if validity != 'VALID':
    yield (
      f'{name}: LoadGen reports the performance run as {validity}. Its summary'
      ' has the reason.'
    )
  yield from consistency.problems(log, result.benchmark, entry.scenario, name)
  yield from _entry(result)
  yield from settings(submission, result, log, name)
  seeds = rounds.ROUNDS[submission.round].seeds
  yield from wrong_seeds(log, seeds, f'{name}, {submission.round}')
  shortest = rounds.MIN_DURATION_MS
  duration = _number(log, 'effective_min_duration_ms')
  short = submission.division == requirements.OPEN and (
    requirements.takes_short_runs(submission.round)
  )
  if duration < shortest and not short:
    yield (
      f'{name}: min_duration was {duration:.0f} ms, but the rules require'
      f' {shortest} ms. Run it with --min_duration={shortest}.'
    )


def _entry(result: job_result.JobResult) -> Iterator[str]:
  """Yields the figures of result.json that differ from LoadGen's log."""
  kept = result.entry.performance
  if kept is None:
    return
  try:
    logged = figures.performance(
      str(result.performance_dir), result.entry.scenario
    )
  except ValueError as error:
    yield f'{result.name}: {error}'
    return
  for field, key in (
    ('valid', 'valid'),
    ('value', kept.metric),
    ('early_stopping_ns', 'early_stopping_ns'),
  ):
    was, value = getattr(kept, field), getattr(logged, field)
    if was != value:
      yield (
        f"{result.name}: {entry_lib.FILE} has {key} {was}, but LoadGen's log"
        f' has {value}. Run it again.'
      )


def over_network(result: job_result.JobResult) -> bool:
  """Returns True if LoadGen used a system over a network in all runs."""
  logs = [log for log in (result.accuracy, result.performance) if log]
  return bool(logs) and all(
    requirements.NETWORK_SUT in str(log.values.get('sut_name')) for log in logs
  )


def settings(
  submission: plan.Submission,
  result: job_result.JobResult,
  log: loadgen_log.RunLog,
  name: str,
) -> Iterator[str]:
  """Yields invalid settings of a performance or compliance run."""
  entry, round_name = result.entry, submission.round
  benchmark, full = result.benchmark, result.benchmark.full_set
  scenario = rounds.SCENARIOS.get(entry.scenario)
  logged = log.values.get('effective_scenario')
  if scenario and logged != scenario.loadgen_name:
    yield f'{name}: The log is of {logged}, not of {scenario.loadgen_name}.'
  drawn = _number(log, 'effective_performance_sample_count')
  if drawn < full:
    yield (
      f'{name}: performance_sample_count was {drawn:.0f}, but every checker'
      f' requires {full}.'
    )
  if scenario and scenario.at_once:
    least = benchmark.min_queries(round_name, entry.scenario)
    samples = _number(log, 'effective_samples_per_query')
    if samples < least and requirements.needs_samples_per_query(
      round_name, submission.division
    ):
      yield (
        f'{name}: {entry.scenario} requested {samples:.0f} samples, but'
        f' {round_name} requires {least}.'
      )
  if benchmark.uses_tokens:
    yield from _tokens(result, log, name)
  elif scenario and scenario.bounded:
    limit = benchmark.server_latency_ms
    bound = _number(log, 'effective_target_latency_ns') / _NS_PER_MS
    if bound > limit:
      yield (
        f'{name}: target_latency was {bound:g} ms, but the benchmark allows at'
        f' most {limit} ms.'
      )


def _tokens(
  result: job_result.JobResult, log: loadgen_log.RunLog, name: str
) -> Iterator[str]:
  """Yields violations of the rules on token latencies.

  The official checkers apply the limits of Server to Interactive too.
  """
  if not log.values.get('requested_use_token_latencies'):
    yield (
      f'{name}: LoadGen did not measure the latencies of tokens, but'
      f' {result.entry.model} requires it (use_token_latencies).'
    )
  scenario = result.entry.scenario
  limits = result.benchmark.token_limits.get(scenario)
  if limits is None:
    return
  try:
    latencies = figures.token_latencies(log, limits)
  except ValueError as error:
    yield f'{name}: {error}.'
    return
  bounds = (limits.ttft_ms, limits.tpot_ms)
  for latency, key, limit in zip(
    latencies, consistency.TOKEN_LIMITS, bounds, strict=True
  ):
    bound = _number(log, key) / _NS_PER_MS
    if bound > limit:
      yield (
        f'{name}: The limit of the {latency.name} was {bound:g} ms, but'
        f' {scenario} allows at most {limit:g} ms.'
      )
    if latency.problem is not None:
      yield f'{name}: {latency.problem}.'


def wrong_seeds(
  log: loadgen_log.RunLog, seeds: dict[str, int], name: str
) -> Iterator[str]:
  """Yields a problem if the log has other seeds than the required ones."""
  wrong = {
    key: value
    for key, seed in seeds.items()
    if (value := log.values.get(f'effective_{key}')) != seed
  }
  if wrong:
    were = ', '.join(f'{key} was {value}' for key, value in wrong.items())
    yield (
      f'{name}: {were} instead of'
      f' {", ".join(str(seeds[key]) for key in wrong)}. Run it again with the'
      ' --round that you submit to.'
    )


def figure(text: str, metric: str) -> float | None:
  """Returns a figure of accuracy.txt, parsed like in the official checkers."""
  pattern = rf".*'{metric}': ([\d.]+).*"
  if metric == 'f1':
    pattern = r'^\{"exact_match": [\d.]+, "f1": ([\d.]+)\}'
  match = re.search(pattern, text, re.MULTILINE)
  return float(match[1]) if match else None


def _errors(log: loadgen_log.RunLog, name: str, run: str) -> Iterator[str]:
  if log.problems:
    yield (
      f'{name}: LoadGen logged {len(log.problems)} errors in the {run} run.'
      f' The first one is: {log.problems[0]}'
    )


def _number(log: loadgen_log.RunLog, key: str) -> float:
  value = log.values.get(key)
  return float(value) if isinstance(value, int | float) else 0.0
