"""Renders the page of one run, with its result and charts of its timeline."""

from collections.abc import Iterator, Mapping
import dataclasses
import os
import pathlib
import shlex
from typing import Any

import numpy as np

from harness.benchmarks import all as benchmarks
from harness.loadgen import loadgen_log
from harness.pages import charts
from harness.pages import costs
from harness.pages import scores as scores_lib
from harness.pages import series
from harness.results import entry as entry_lib
from harness.rules import rounds
from saxml_ext.common.pages import page_kit
from saxml_ext.common.pages import plotly_charts

_TEMPLATE = pathlib.Path(__file__).parent / 'templates' / 'run.html'
_MODES = ('performance', 'accuracy')


@dataclasses.dataclass(frozen=True)
class Job:
  """The content of a job's directory.

  Attributes:
    directory: The directory.
    entry: The result.
    samples: The recorded timelines, by mode.
  """

  directory: str
  entry: entry_lib.Entry
  samples: Mapping[str, series.Samples]

  @property
  def mode(self) -> str | None:
    """The mode whose timeline the charts show, preferably performance."""
    return next((mode for mode in _MODES if mode in self.samples), None)

  @property
  def set_size(self) -> int | None:
    """The number of samples in the set, or None if it is unknown.

    An accuracy run processes each sample of the set once.
    """
    accuracy = self.entry.accuracy
    if accuracy and 'gen_num' in accuracy.metrics:
      return int(accuracy.metrics['gen_num'])
    if 'accuracy' in self.samples:
      return len(self.samples['accuracy'])
    task = self.entry.parameters.get('task')
    count = task.get('sample_count') if isinstance(task, Mapping) else None
    return count or None


def read(directory: str) -> Job:
  """Reads a job's directory.

  Raises:
    OSError: There is no result.json, or a file cannot be read.
    ValueError: A file is malformed.
  """
  entry = entry_lib.read(directory)
  samples = {}
  for mode in _MODES:
    path = os.path.join(directory, 'timeline', f'{mode}.csv')
    if getattr(entry, mode) is not None and os.path.exists(path):
      samples[mode] = series.from_times(loadgen_log.read_timeline(path))
  return Job(directory, entry, samples)


def render(job: Job, price_per_hour: float | None = None) -> str:
  """Returns the page as HTML."""
  entry, run = job.entry, job.entry.performance
  data: dict[str, Any] = {'figures': {}, 'samples': None}
  if job.mode:
    data |= _timeline(job, job.mode)
  if run is not None:
    data['figure'], data['unit'] = _result(run, entry.scenario)
    data['token_cards'] = list(_token_cards(entry, run))
    data['percentiles'] = list(_percentiles(run))
  if entry.accuracy is not None:
    data['accuracy_card'] = _accuracy_card(entry.accuracy)
    data['scores'] = scores_lib.scores(entry, job.set_size, data['figures'])
  cost = None
  if run is not None and price_per_hour is not None:
    cost = costs.cost(run, price_per_hour)
  return plotly_charts.render(
    _TEMPLATE,
    entry=entry,
    run=run,
    directory=job.directory,
    system_name=costs.system_name(entry),
    warnings=list(_warnings(entry)),
    economy=list(_economy(entry, price_per_hour, cost)),
    economy_cards=list(_economy_cards(entry, cost)),
    user_conf=_user_conf(job.directory),
    command=shlex.join(entry.command),
    **data,
  )


def _result(run: entry_lib.Performance, scenario: str) -> tuple[str, str]:
  """Returns the scenario's figure and its unit."""
  rules = rounds.SCENARIOS[scenario]
  if rules.streams:
    return page_kit.number(run.value / 1e6), f'ms, {rules.rank} percentile'
  return page_kit.number(run.value), rules.unit


def _token_cards(
  entry: entry_lib.Entry, run: entry_lib.Performance
) -> Iterator[tuple[str, str, str]]:
  """Yields the name, the figure and the detail of each latency of tokens."""
  limits = benchmarks.get(entry.benchmark).token_limits.get(entry.scenario)
  for name, latencies, mean, limit in (
    ('TTFT', run.first_token_ns, run.mean_first_token_ns, 'ttft_ms'),
    ('TPOT', run.per_token_ns, run.mean_per_token_ns, 'tpot_ms'),
  ):
    if mean is not None:
      detail = f'ms, 99th percentile; mean {page_kit.number(mean / 1e6)} ms'
      if limits:
        detail += f'; limit {getattr(limits, limit):g} ms'
      yield name, page_kit.number(latencies['99.00'] / 1e6), detail


def _percentiles(
  run: entry_lib.Performance,
) -> Iterator[tuple[str, list[str], list[str]]]:
  """Yields the title, headings and row of each table of percentiles."""
  for title, values in (
    ('Latency', run.latency_ns),
    ('Time to the first token', run.first_token_ns),
    ('Time per output token', run.per_token_ns),
  ):
    if values:
      row = ['ms', *(page_kit.number(value / 1e6) for value in values.values())]
      yield title, ['Percentile', *(f'p{float(key):g}' for key in values)], row


def _accuracy_card(accuracy: entry_lib.Accuracy) -> tuple[str, str]:
  name = 'rouge1' if 'rouge1' in accuracy.metrics else 'f1'
  figure = accuracy.metrics.get(name)
  detail = scores_lib.TITLES[name]
  if accuracy.reference is not None:
    verdict = 'passed' if accuracy.passed else 'NOT passed'
    detail += f', {verdict} beside the reference'
  return '–' if figure is None else f'{figure:.4f}', detail


def _economy(
  entry: entry_lib.Entry, price_per_hour: float | None, cost: costs.Cost | None
) -> Iterator[tuple[str, str]]:
  """Yields the rows about cost and energy."""
  number, run = page_kit.number, entry.performance
  if run is None:
    return
  if price_per_hour is not None:
    yield 'Price of the system per hour', number(price_per_hour)
  if cost is not None:
    yield 'Cost of the performance run', number(cost.run)
    yield 'Cost per 1,000 samples', number(cost.per_1000_samples)
    yield 'Cost per million generated tokens', number(cost.per_million_tokens)
  for meter, joules in entry.energy.items():
    yield f'Energy ({meter})', f'{number(joules)} J'
    if run.seconds > 0:
      yield f'Mean power ({meter})', f'{number(joules / run.seconds)} W'
    if run.samples:
      yield f'Energy per sample ({meter})', f'{number(joules / run.samples)} J'


def _economy_cards(
  entry: entry_lib.Entry, cost: costs.Cost | None
) -> Iterator[tuple[str, str, str]]:
  number, run = page_kit.number, entry.performance
  if cost and cost.per_million_tokens is not None:
    figure = number(cost.per_million_tokens)
    yield 'Cost', figure, 'per million generated tokens'
  elif cost:
    yield 'Cost', number(cost.per_1000_samples), 'per 1,000 samples'
  if run and run.samples:
    for meter, joules in entry.energy.items():
      yield 'Energy', number(joules / run.samples), f'J per sample ({meter})'


def _warnings(entry: entry_lib.Entry) -> Iterator[str]:
  """Yields warnings for readers who want to quote the figure."""
  run = entry.performance
  if run is None:
    yield 'No performance run was made, so the speed is unknown.'
    return
  if not run.valid:
    yield (
      'LoadGen reports this run as INVALID, so its figure is not a result. The'
      ' summary below has the reason.'
    )
  for problem in entry.notes.get('problems') or ():
    yield f'LoadGen logged an error: {problem}'
  shortest = rounds.MIN_DURATION_MS / 1000
  if run.seconds < shortest:
    yield (
      f'The run lasted {run.seconds:.1f} s, but official runs last at least'
      f' {shortest:.0f} s.'
    )


def _user_conf(directory: str) -> str | None:
  path = pathlib.Path(directory, 'user.conf')
  return path.read_text('utf-8', 'replace') if path.exists() else None


def _timeline(job: Job, mode: str) -> dict[str, Any]:
  """Returns the charts of a timeline, and the values for the template."""
  samples, scenario = job.samples[mode], job.entry.scenario
  rules = rounds.SCENARIOS[scenario]
  benchmark = benchmarks.get(job.entry.benchmark)
  limits = benchmark.token_limits.get(scenario)
  bound = None
  if rules.bounded and not limits:
    bound = benchmark.server_latency_ms / 1000
  windows = series.windows(samples)
  latency = series.query_latency(samples, scenario)
  seconds = max(samples.seconds, 1e-6)
  figures = {
    'throughput': charts.rate(
      windows,
      windows.samples_per_second,
      len(samples) / seconds,
      'samples/s',
      charts.BLUE,
    ),
    'latency-time': charts.latency_over_time(samples, bound),
    'latency-cdf': charts.distribution(latency, 'latency', bound),
    'latency-histogram': charts.histogram(
      latency, 'latency', charts.BLUE, time=True
    ),
    'phases': charts.phases(windows),
  }
  if samples.tokens.any():
    figures['token-throughput'] = charts.rate(
      windows,
      windows.tokens_per_second,
      samples.tokens.sum() / seconds,
      'tokens/s',
      charts.GREEN,
    )
    figures['tokens'] = charts.histogram(
      samples.tokens, 'generated tokens', charts.GREEN, time=False
    )
  times = [
    ('Latency (issued to done)', samples.latency),
    ('In the queue (issued to sent)', samples.waiting),
    ('In the system (sent to done)', samples.answering),
  ]
  known = ~np.isnan(samples.first_token)
  if known.any():
    first = (samples.first_token - samples.issued)[known]
    times.append(('To the first token (issued to first token)', first))
    figures['first-token'] = charts.distribution(
      first,
      'time to the first token',
      limits.ttft_ms / 1000 if limits else None,
      charts.VIOLET,
    )
  # Only answers of at least two tokens have tokens after the first.
  if (some := known & (samples.tokens > 1)).any():
    rest = (samples.done - samples.first_token)[some]
    times.append(
      ('Per token after the first', rest / (samples.tokens[some] - 1))
    )
  shown = len(figures['latency-time']['data'][0]['x'])
  return {
    'figures': figures,
    'samples': samples,
    'windows': windows,
    'mode': mode,
    'thinned': f'All {shown:,} samples.'
    if shown == len(samples)
    else (
      f'{shown:,} of {len(samples):,} samples are drawn: the slowest ones, and'
      ' others at even steps.'
    ),
    'bound_note': _bound_note(latency, bound),
    'queries': len(latency),
    'rules': rules,
    'first_tokens': int(known.sum()),
    'time_headings': [
      *('Time (ms)', 'mean'),
      *(f'p{p:g}' for p in series.PERCENTILES),
      'highest',
    ],
    'times': [(name, *_milliseconds(values)) for name, values in times],
  }


def _milliseconds(values: np.ndarray) -> Iterator[str]:
  """Yields the mean, the percentiles and the maximum, in ms, of times in s."""
  for seconds in (
    values.mean(),
    *(series.percentile(values, p) for p in series.PERCENTILES),
    values.max(),
  ):
    yield page_kit.number(float(seconds) * 1000)


def _bound_note(latency: np.ndarray, bound: float | None) -> str:
  if bound is None:
    return ''
  over = int((latency > bound).sum())
  note = (
    f'The Server scenario allows {bound * 1000:,.0f} ms for 99 of 100 queries.'
    f' {over:,} of {len(latency):,} ({over / len(latency):.2%}) took longer.'
  )
  if charts.bound_fits(latency, bound):
    return note
  return f'{note} The limit is far outside of the axes, so it is not drawn.'
