"""Computes line charts in SVG, which a browser shows without a script."""

from collections.abc import Mapping, Sequence
import math
from typing import Any

# The macro `parts.lines` draws it in a template.
Figure = dict[str, Any]

# These are the coordinates of the drawing. A page scales it.
_TOTAL, _HEIGHT = 520, 170
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 6, 8, 22
_WIDTH = _TOTAL - _LEFT - _RIGHT
_COLORS = 8

Values = Sequence[float | None]


def over_time(
  title: str,
  unit: str,
  ages: Sequence[float],
  series: Sequence[tuple[str, Values]],
) -> Figure:
  """Returns a figure of values over time, with data for a script.

  A script may show the values under the pointer.

  Args:
    title: The title of the figure.
    unit: The unit of the values.
    ages: The ages of the values in seconds, in descending order; at least 2.
    series: The name and the values of each line, one value per age. None leaves
      a gap.
  """
  top = _nice(max((v for _, vs in series for v in vs if v), default=0.0))
  data = {
    'unit': unit,
    'left': _LEFT,
    'width': _WIDTH,
    'total': _TOTAL,
    'ages': [round(age) for age in ages],
    'values': [[v if v is None else _round(v) for v in vs] for _, vs in series],
  }
  labels = {0: _ago(ages[0]), len(ages) - 1: 'now'}
  return figure(title, unit, series, (0.0, 0.5 * top, top), labels, data)


def figure(
  title: str,
  unit: str,
  series: Sequence[tuple[str, Values]],
  ticks: Sequence[float],
  labels: Mapping[int, str],
  data: Mapping[str, Any] | None = None,
) -> Figure:
  """Returns a figure with a line for each series.

  Args:
    title: The title of the figure.
    unit: The unit of the values.
    series: The name and the values of each line. None leaves a gap.
    ticks: The values with a grid line and a label, ascending. The first and the
      last are the ends of the axis.
    labels: The labels below the drawing, by the index of a value.
    data: The data for scripts. If None, every point shows its value instead.
  """
  low, high = ticks[0], ticks[-1]
  last = max(max(len(values) for _, values in series) - 1, 1)

  def x(index: int) -> float:
    return round(_LEFT + _WIDTH * index / last, 1)

  def y(value: float) -> float:
    part = min((value - low) / (high - low), 1.0)
    return round(_TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - part), 1)

  lines = [
    {
      'name': name,
      'color': f's{i % _COLORS}',
      'latest': '–' if not vs or vs[-1] is None else _short(vs[-1]),
      'pieces': [[(x(i), y(v)) for i, v in piece] for piece in _pieces(vs)],
      'points': [
        (x(i), y(v), f'{name}, {i}: {v:.1f} {unit}')
        for i, v in enumerate(vs)
        if v is not None and data is None
      ],
    }
    for i, (name, vs) in enumerate(series)
  ]
  return {
    'title': title,
    'unit': unit,
    'data': data,
    'lines': lines,
    'ticks': [(y(tick), _short(tick)) for tick in ticks],
    'labels': [(x(i), _anchor(i, last), text) for i, text in labels.items()],
    'left': _LEFT,
    'right': _TOTAL - _RIGHT,
    'top': _TOP,
    'zero': y(low),
    'total': _TOTAL,
    'height': _HEIGHT,
  }


def _pieces(values: Values) -> list[list[tuple[int, float]]]:
  """Splits values at gaps into runs of (index, value) pairs."""
  pieces: list[list[tuple[int, float]]] = [[]]
  for i, value in enumerate(values):
    if value is not None:
      pieces[-1].append((i, value))
    elif pieces[-1]:
      pieces.append([])
  return [piece for piece in pieces if piece]


def _anchor(index: int, last: int) -> str:
  """Returns the alignment that keeps a label within the drawing."""
  return {0: 'start', last: 'end'}.get(index, 'middle')


def _nice(value: float) -> float:
  """Returns a round number of at least `value`, for the end of an axis."""
  if value <= 0:
    return 1.0
  power = 10.0 ** math.floor(math.log10(value))
  return next(f * power for f in (1, 2, 4, 5, 10) if value <= f * power * 1.001)


def _short(value: float) -> str:
  if value >= 9999.5:
    return f'{value / 1e3:.3g}k'
  return f'{_round(value):g}'


def _round(value: float) -> float:
  """Rounds to three significant digits, but keeps the whole part."""
  return round(value) if value >= 1000 else float(f'{value:.3g}')


def _ago(seconds: float) -> str:
  if seconds < 90:
    return f'{seconds:.0f} s ago'
  return f'{seconds / 60:.0f} min ago'
