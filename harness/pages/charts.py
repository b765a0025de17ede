"""Charts of a run, as Plotly figures that charts.js draws.

Colours are the page's CSS variables: charts.js puts the values of the light or
of the dark scheme in their place.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from plotly import graph_objects as go

from harness.pages import series

Figure = dict[str, Any]

BLUE = 'var(--c1)'
ORANGE = 'var(--c2)'
GREEN = 'var(--c3)'
VIOLET = 'var(--c4)'
BAD = 'var(--bad)'
MUTED = 'var(--muted)'

_SCATTER_POINTS = 4500
# A bound that lies further off than this would press the data to the edge.
_FURTHEST_BOUND = 4.0
# Digits kept of coordinates: more than a screen can show.
_DIGITS = 6


def time_unit(highest: float) -> tuple[float, str]:
  """By what seconds are multiplied for reading, and the unit's name."""
  if highest < 1e-3:
    return 1e6, 'µs'
  if highest < 1.0:
    return 1e3, 'ms'
  return 1.0, 's'


def throughput(windows: series.Windows, mean: float) -> Figure:
  """Samples per second over time, with the mean of the run."""
  return _rate(windows, windows.samples_per_second, mean, 'samples/s', BLUE)


def token_throughput(windows: series.Windows, mean: float) -> Figure:
  """Generated tokens per second over time, with the mean of the run."""
  return _rate(windows, windows.tokens_per_second, mean, 'tokens/s', GREEN)


def _rate(
  windows: series.Windows,
  rates: np.ndarray,
  mean: float,
  unit: str,
  colour: str,
) -> Figure:
  return _figure(
    [
      _line(windows.middles, rates, unit, colour),
      _level(windows.middles, mean, 'mean of the run'),
    ],
    'seconds since the first issue',
    unit,
    y_from_zero=True,
  )


def latency_over_time(samples: series.Samples, bound: float | None) -> Figure:
  """Latency of samples by the time of their issue, thinned."""
  scale, unit = time_unit(float(samples.latency.max()))
  # Offline issues all at once: only the time of the answer spreads them.
  at_once = samples.issued.max() <= 0.01 * samples.seconds
  x = samples.done if at_once else samples.issued
  kept = series.thin(x, samples.latency, _SCATTER_POINTS)
  points = go.Scatter(
    x=_numbers(x[kept]),
    y=_numbers(samples.latency[kept] * scale),
    mode='markers',
    name='samples',
    marker={'color': BLUE, 'size': 4, 'opacity': 0.5},
  )
  traces = [points]
  if bound is not None and bound_fits(samples.latency, bound):
    ends = np.array([float(x.min()), float(x.max())])
    traces.append(_level(ends, bound * scale, 'latency bound', BAD))
  return _figure(
    traces,
    'seconds since the first issue, of the '
    + ('answer' if at_once else 'issue'),
    f'latency ({unit})',
    y_from_zero=True,
  )


def bound_fits(latency: np.ndarray, bound: float) -> bool:
  """Whether a bound in seconds can be drawn beside these latencies."""
  return bound <= _FURTHEST_BOUND * float(latency.max())


def distribution(
  values: np.ndarray, name: str, bound: float | None, colour: str = BLUE
) -> Figure:
  """Cumulative distribution of times, with the percentiles marked."""
  scale, unit = time_unit(float(values.max()))
  at, percents = series.distribution(values)
  marks = [series.percentile(values, p) * scale for p in series.PERCENTILES]
  traces = [
    go.Scatter(
      x=_numbers(at * scale),
      y=_numbers(percents),
      mode='lines',
      name='all',
      line={'color': colour, 'width': 2, 'shape': 'hv'},
    ),
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
    edge = _numbers(np.array([bound, bound]) * scale)
    traces.append(
      go.Scatter(
        x=edge,
        y=[0, 100],
        mode='lines',
        name='latency bound',
        line={'color': BAD, 'width': 2, 'dash': 'dash'},
      )
    )
  return _figure(traces, f'{name} ({unit})', '% at most this')


def histogram(values: np.ndarray, name: str, colour: str, time: bool) -> Figure:
  """How many samples have which value; times are given in seconds."""
  scale, unit = (1.0, '')
  if time:
    scale, unit = time_unit(float(values.max()))
  middles, counts = series.histogram(values)
  bars = go.Bar(
    x=_numbers(middles * scale),
    y=counts.tolist(),
    name='samples',
    marker={'color': colour},
  )
  title = f'{name} ({unit})' if unit else name
  figure = _figure([bars], title, 'samples', y_from_zero=True)
  figure['layout']['bargap'] = 0.04
  return figure


def phases(windows: series.Windows) -> Figure:
  """Mean time of the phases of a sample over time, one on the other."""
  highest = np.nanmax(windows.waiting + windows.answering)
  scale, unit = time_unit(float(highest))
  traces = [
    go.Scatter(
      x=_numbers(windows.middles),
      y=_numbers(values * scale),
      mode='lines',
      name=name,
      stackgroup='phases',
      stackgaps='interpolate',  # No answer in a window is no time of zero.
      line={'color': colour, 'width': 1},
    )
    for name, values, colour in (
      ('in the queue (issued to sent)', windows.waiting, ORANGE),
      ('in the system (sent to done)', windows.answering, BLUE),
    )
  ]
  return _figure(
    traces,
    'seconds since the first issue, of the answer',
    f'mean time ({unit})',
  )


def scores(
  names: Sequence[str],
  figures: Mapping[str, float],
  beside: Sequence[tuple[str, Mapping[str, float]]],
) -> Figure:
  """Scores as bars, beside what they are judged by.

  Args:
    names: of the scores, in order.
    figures: of the run, by name.
    beside: title and figures of thresholds or references.
  """
  traces = [
    go.Bar(
      x=list(names),
      y=[figures.get(name) for name in names],
      name=title,
      marker={'color': colour},
      text=[_score(figures.get(name)) for name in names],
      textposition='outside',
    )
    for (title, figures), colour in zip(
      [('this run', figures), *beside], (BLUE, MUTED, ORANGE, VIOLET)
    )
  ]
  figure = _figure(traces, '', 'score', y_from_zero=True)
  figure['layout']['barmode'] = 'group'
  return figure


def _score(value: float | None) -> str:
  return '' if value is None else f'{value:.2f}'


def _line(x: np.ndarray, y: np.ndarray, name: str, colour: str) -> go.Scatter:
  return go.Scatter(
    x=_numbers(x),
    y=_numbers(y),
    mode='lines',
    name=name,
    line={'color': colour, 'width': 2, 'shape': 'hvh'},
  )


def _level(
  x: np.ndarray, y: float, name: str, colour: str = MUTED
) -> go.Scatter:
  return go.Scatter(
    x=_numbers(x[[0, -1]]),
    y=[y, y],
    mode='lines',
    name=name,
    line={'color': colour, 'width': 2, 'dash': 'dash'},
  )


def _figure(
  traces: Sequence[Any], x_title: str, y_title: str, y_from_zero: bool = False
) -> Figure:
  figure = go.Figure(
    data=list(traces),
    layout={
      'xaxis': {'title': {'text': x_title}},
      'yaxis': {
        'title': {'text': y_title},
        'rangemode': 'tozero' if y_from_zero else 'normal',
      },
      'showlegend': len(traces) > 1,
    },
  ).to_dict()
  figure['layout'].pop('template', None)  # charts.js brings the page's own.
  return figure


def _numbers(values: np.ndarray) -> list[float | None]:
  """Plain numbers for JSON, which knows no NaN."""
  return [
    None if np.isnan(value) else float(f'{value:.{_DIGITS}g}')
    for value in values.tolist()
  ]
