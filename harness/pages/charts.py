"""Creates the charts of a run, which the page draws with plotly.js."""

from collections.abc import Mapping, Sequence

import numpy as np
from plotly import graph_objects as go

from harness.pages import series
from saxml_ext.common.pages import plotly_charts

Figure = plotly_charts.Figure

BLUE = 'var(--c1)'
ORANGE = 'var(--c2)'
GREEN = 'var(--c3)'
VIOLET = 'var(--c4)'
BAD = 'var(--bad)'
MUTED = 'var(--muted)'

_SCATTER_POINTS = 4500
# A bound further away than this would squeeze the data against the axis.
_FURTHEST_BOUND = 4.0

_figure = plotly_charts.figure
_numbers = plotly_charts.numbers


def time_unit(highest: float) -> tuple[float, str]:
  """Returns a readable unit of time: its factor from seconds, and its name."""
  if highest < 1e-3:
    return 1e6, 'µs'
  return (1e3, 'ms') if highest < 1.0 else (1.0, 's')


def rate(
  windows: series.Windows, rates: np.ndarray, mean: float, unit: str, color: str
) -> Figure:
  """Returns a chart of a rate over time, with the mean of the run."""
  traces = [
    _line(windows.middles, rates, unit, color, shape='hvh'),
    _level(windows.middles, mean, 'mean of the run'),
  ]
  return _figure(traces, 'seconds since the first issue', unit, True)


def latency_over_time(samples: series.Samples, bound: float | None) -> Figure:
  """Returns a scatter chart of latencies by issue time, with fewer points."""
  scale, unit = time_unit(float(samples.latency.max()))
  # Offline issues all samples at once, so the chart uses the answer times.
  at_once = samples.issued.max() <= 0.01 * samples.seconds
  x, event = (samples.done, 'answer') if at_once else (samples.issued, 'issue')
  kept = series.thin(x, samples.latency, _SCATTER_POINTS)
  traces = [
    go.Scatter(
      x=_numbers(x[kept]),
      y=_numbers(samples.latency[kept] * scale),
      mode='markers',
      name='samples',
      marker={'color': BLUE, 'size': 4, 'opacity': 0.5},
    )
  ]
  if bound is not None and bound_fits(samples.latency, bound):
    ends = np.array([float(x.min()), float(x.max())])
    traces.append(_level(ends, bound * scale, 'latency limit', BAD))
  title = f'seconds since the first issue, of the {event}'
  return _figure(traces, title, f'latency ({unit})', True)


def bound_fits(latency: np.ndarray, bound: float) -> bool:
  """Returns True if a bound in seconds fits in a chart of the latencies."""
  return bound <= _FURTHEST_BOUND * float(latency.max())


def distribution(
  values: np.ndarray, name: str, bound: float | None, color: str = BLUE
) -> Figure:
  """Returns the cumulative distribution of times, with marked percentiles."""
  scale, unit = time_unit(float(values.max()))
  at, percents = series.distribution(values)
  marks = [series.percentile(values, p) * scale for p in series.PERCENTILES]
  traces = [
    _line(at * scale, percents, 'all', color, shape='hv'),
    go.Scatter(
      x=_numbers(np.array(marks)),
      y=list(series.PERCENTILES),
      mode='markers',
      name='percentiles',
      text=[f'{p:g}th percentile' for p in series.PERCENTILES],
      hovertemplate=f'%{{text}}: %{{x:.4g}} {unit}<extra></extra>',
      marker={'color': ORANGE, 'size': 8},
    ),
  ]
  if bound is not None and bound_fits(values, bound):
    edge, ends = np.full(2, bound * scale), np.array([0.0, 100.0])
    traces.append(_line(edge, ends, 'latency limit', BAD, dash='dash'))
  return _figure(traces, f'{name} ({unit})', '% at most this')


def histogram(values: np.ndarray, name: str, color: str, time: bool) -> Figure:
  """Returns a histogram of the values per sample. Times are in seconds."""
  scale, title = 1.0, name
  if time:
    scale, unit = time_unit(float(values.max()))
    title = f'{name} ({unit})'
  middles, counts = series.histogram(values)
  bars = go.Bar(
    x=_numbers(middles * scale),
    y=counts.tolist(),
    name='samples',
    marker={'color': color},
  )
  return _figure([bars], title, 'samples', True, bargap=0.04)


def phases(windows: series.Windows) -> Figure:
  """Returns the mean times of a sample's phases over time, stacked."""
  highest = np.nanmax(windows.waiting + windows.answering)
  scale, unit = time_unit(float(highest))
  traces = [
    go.Scatter(
      x=_numbers(windows.middles),
      y=_numbers(values * scale),
      mode='lines',
      name=name,
      stackgroup='phases',
      stackgaps='interpolate',  # Windows may have no answers.
      line={'color': color, 'width': 1},
    )
    for name, values, color in (
      ('in the queue (issued to sent)', windows.waiting, ORANGE),
      ('in the system (sent to done)', windows.answering, BLUE),
    )
  ]
  title = 'seconds since the first issue, of the answer'
  return _figure(traces, title, f'mean time ({unit})')


def scores(
  titles: Mapping[str, str], columns: Sequence[tuple[str, Mapping[str, float]]]
) -> Figure:
  """Returns a bar chart of scores and their thresholds or references.

  Args:
    titles: The title of each score, by name.
    columns: The titles and the figures of the run, and of thresholds or
      references.
  """
  traces = [
    go.Bar(
      x=list(titles.values()),
      y=[figures.get(name) for name in titles],
      name=title,
      marker={'color': color},
      text=[
        f'{figures[name]:.2f}' if name in figures else '' for name in titles
      ],
      textposition='outside',
    )
    for (title, figures), color in zip(columns, (BLUE, MUTED, ORANGE, VIOLET))
  ]
  return _figure(traces, '', 'score', True, barmode='group')


def _line(
  x: np.ndarray, y: np.ndarray, name: str, color: str, **line: str
) -> go.Scatter:
  return go.Scatter(
    x=_numbers(x),
    y=_numbers(y),
    mode='lines',
    name=name,
    line={'color': color, 'width': 2, **line},
  )


def _level(
  x: np.ndarray, y: float, name: str, color: str = MUTED
) -> go.Scatter:
  return _line(x[[0, -1]], np.full(2, y), name, color, dash='dash')
