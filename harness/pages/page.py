"""The page of one run: its result, and how it came about, in charts."""

from collections.abc import Mapping
import dataclasses
import os

import numpy as np

from harness.loadgen import timeline
from harness.pages import charts
from harness.pages import costs
from harness.pages import details
from harness.pages import headline
from harness.pages import markup
from harness.pages import scores
from harness.pages import series
from harness.results import entry as entry_lib
from harness.rules import rounds

_MODES = ('performance', 'accuracy')


@dataclasses.dataclass(frozen=True)
class Job:
  """A job as its directory tells it.

  Attributes:
    directory: where it lies.
    entry: its result.
    samples: by mode, the timelines that were kept.
  """

  directory: str
  entry: entry_lib.Entry
  samples: Mapping[str, series.Samples]

  @property
  def mode(self) -> str | None:
    """Whose timeline the charts show: the performance run's if it is there."""
    return next((mode for mode in _MODES if mode in self.samples), None)

  @property
  def set_size(self) -> int | None:
    """Samples of the set; an accuracy run goes over it once."""
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
    OSError: it has no result.json, or something cannot be read.
    ValueError: a file is not what a job wrote.
  """
  entry = entry_lib.read(directory)
  samples = {}
  for mode in _MODES:
    path = os.path.join(directory, 'timeline', f'{mode}.csv')
    if getattr(entry, mode) is not None and os.path.exists(path):
      samples[mode] = series.from_times(timeline.read(path))
  return Job(directory, entry, samples)


def price(entry: entry_lib.Entry, prices: dict[str, float]) -> float | None:
  """The price of a result's system among those that a user named."""
  name = headline.system_name(entry)
  return costs.price_of(prices, entry.id, *([name] if name else []))


def bound_seconds(entry: entry_lib.Entry) -> float | None:
  """The latency bound of the Server scenario; None elsewhere."""
  if entry.scenario != rounds.SERVER:
    return None
  return rounds.SERVER_LATENCY_MS[entry.benchmark] / 1000


def render(job: Job, price_per_hour: float | None = None) -> str:
  """The page as HTML."""
  entry = job.entry
  figures: dict[str, charts.Figure] = {}
  parts = [headline.render(entry, price_per_hour)]
  if job.mode:
    parts += _timeline_sections(job, job.mode, figures)
  else:
    parts.append(
      markup.section(
        'timeline',
        'Over time',
        markup.paragraph(
          'No timeline of a run was kept in the directory of this job, so there'
          ' are no charts over time.',
          'note',
        ),
      )
    )
  parts.append(scores.render(entry, job.set_size, figures))
  parts += details.render(entry, job.directory, price_per_hour)
  body = markup.join(
    [
      headline.banner(entry),
      markup.element('main', *parts, id='main'),
      details.footer(entry),
      markup.data('figures', figures),
    ]
  )
  return markup.document(
    f'{entry.model} {entry.scenario} – {entry.system}',
    body,
    ['charts.js'],
    charts=True,
  )


def _timeline_sections(
  job: Job, mode: str, figures: dict[str, charts.Figure]
) -> list[markup.Html]:
  samples = job.samples[mode]
  bound = bound_seconds(job.entry)
  windows = series.windows(samples)
  sections = [
    _throughput(samples, windows, mode, figures),
    _latency(samples, job.entry.scenario, bound, figures),
    _phases(samples, windows, figures),
  ]
  if samples.tokens.any():
    sections.append(_tokens(samples, figures))
  return sections


def _throughput(samples, windows, mode, figures) -> markup.Html:
  rate = len(samples) / max(samples.seconds, 1e-6)
  figures['throughput'] = charts.throughput(windows, rate)
  parts = [
    markup.chart(
      'throughput',
      'Samples per second over time',
      f'Samples answered in the {mode} run, in windows of'
      f' {markup.number(windows.width)} s.',
    )
  ]
  if samples.tokens.any():
    tokens = samples.tokens.sum() / max(samples.seconds, 1e-6)
    figures['token-throughput'] = charts.token_throughput(windows, tokens)
    parts.append(
      markup.chart(
        'token-throughput',
        'Tokens per second over time',
        'Generated tokens. All tokens of an answer count when it is done.',
      )
    )
  return markup.section('throughput', 'Throughput', _grid(parts))


def _latency(samples, scenario, bound, figures) -> markup.Html:
  latency = series.query_latency(samples, scenario)
  figures['latency-time'] = charts.latency_over_time(samples, bound)
  figures['latency-cdf'] = charts.distribution(latency, 'latency', bound)
  figures['latency-histogram'] = charts.histogram(
    latency, 'latency', charts.BLUE, True
  )
  shown = len(figures['latency-time']['data'][0]['x'])
  thinned = (
    f'{shown:,} of {len(samples):,} samples are drawn: the slowest of all, and'
    ' others at even steps.'
    if shown < len(samples)
    else f'All {shown:,} samples.'
  )
  what = 'queries' if scenario == rounds.MULTI_STREAM else 'samples'
  parts = [
    markup.chart('latency-time', 'Latency over time', thinned, wide=True),
    markup.chart(
      'latency-cdf',
      'Cumulative distribution of the latency',
      f'Of {len(latency):,} {what}; dots mark the percentiles of the table'
      ' below.',
    ),
    markup.chart(
      'latency-histogram',
      'Histogram of the latency',
      f'How many {what} took how long.',
    ),
  ]
  notes = _bound_note(latency, bound)
  if scenario == rounds.OFFLINE:
    notes.append(
      markup.paragraph(
        'Offline issues all samples at once: most of a latency is the time in'
        ' the queue, and no bound holds.'
      )
    )
  return markup.section('latency', 'Latency', *notes, _grid(parts))


def _bound_note(latency, bound) -> list[markup.Html]:
  if bound is None:
    return []
  over = int((latency > bound).sum())
  beyond = (
    ''
    if charts.bound_fits(latency, bound)
    else ' The bound lies far beyond the axes, so it is not drawn.'
  )
  return [
    markup.paragraph(
      f'The Server scenario allows {bound * 1000:,.0f} ms in 99 of 100 queries:'
      f' {over:,} of {len(latency):,} ({over / len(latency):.2%}) took'
      f' longer.{beyond}'
    )
  ]


def _phases(samples, windows, figures) -> markup.Html:
  figures['phases'] = charts.phases(windows)
  rows = [
    ('Latency (issued to done)', samples.latency),
    ('In the queue (issued to sent)', samples.waiting),
    ('In the system (sent to done)', samples.answering),
  ]
  known = ~np.isnan(samples.first_token)
  parts = [
    markup.chart(
      'phases',
      'Time in the queue and in the system',
      'Mean of the samples answered in each window.',
    )
  ]
  if known.any():
    first = (samples.first_token - samples.issued)[known]
    rows.append(('To the first token (issued to first token)', first))
    figures['first-token'] = charts.distribution(
      first, 'time to the first token', None, charts.VIOLET
    )
    parts.append(
      markup.chart(
        'first-token',
        'Cumulative distribution of the time to the first token',
        f'Of the {int(known.sum()):,} samples of which it is known.',
      )
    )
    rows += _per_token(samples, known)
  return markup.section(
    'phases', 'Queue and system', _grid(parts), _times_table(rows)
  )


def _per_token(samples, known) -> list[tuple[str, np.ndarray]]:
  """Time per token after the first, of answers of two tokens or more."""
  some = known & (samples.tokens > 1)
  if not some.any():
    return []
  rest = (samples.done - samples.first_token)[some]
  return [('Per token after the first', rest / (samples.tokens[some] - 1))]


def _times_table(rows) -> markup.Html:
  headings = ['Time (ms)', 'mean']
  headings += [f'p{p:g}' for p in series.PERCENTILES] + ['highest']
  body = []
  for name, values in rows:
    cells = [float(values.mean())]
    cells += [series.percentile(values, p) for p in series.PERCENTILES]
    cells.append(float(values.max()))
    body.append((name, *(markup.number(cell * 1000) for cell in cells)))
  return markup.table(
    headings, body, 'Times of the samples in milliseconds', class_='numbers'
  )


def _tokens(samples, figures) -> markup.Html:
  figures['tokens'] = charts.histogram(
    samples.tokens, 'generated tokens', charts.GREEN, False
  )
  return markup.section(
    'tokens',
    'Tokens',
    markup.chart(
      'tokens',
      'Histogram of generated tokens',
      f'{int(samples.tokens.sum()):,} tokens in all,'
      f' {samples.tokens.mean():.1f} in an answer.',
    ),
  )


def _grid(parts) -> markup.Html:
  return markup.element('div', *parts, class_='grid')
