"""Lines over time as SVG that a browser shows without any script."""

from collections.abc import Sequence
import html
import json
import math

# Coordinates of the drawing; a page scales it.
_WIDTH, _HEIGHT = 520, 170
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 6, 8, 22
_COLOURS = 8

Values = Sequence[float | None]


def plot(
  title: str,
  unit: str,
  ages: Sequence[float],
  series: Sequence[tuple[str, Values]],
) -> str:
  """A figure with a line for each series.

  Args:
    title: of the figure.
    unit: of the values.
    ages: of the values, in seconds, descending to the newest; at least 2.
    series: name and values of each, as many as ages; None leaves a gap.

  Returns:
    HTML.
  """
  top = _nice(max((v for _, vs in series for v in vs if v), default=0.0))
  width = _WIDTH - _LEFT - _RIGHT
  data = {
    'unit': unit,
    'left': _LEFT,
    'width': width,
    'total': _WIDTH,
    'ages': [round(age) for age in ages],
    'values': [[v if v is None else _round(v) for v in vs] for _, vs in series],
  }
  lines = ''.join(
    _line(values, top, i, filled=len(series) == 1)
    for i, (_, values) in enumerate(series)
  )
  return (
    f'<figure data-plot="{html.escape(json.dumps(data))}">'
    f'<figcaption>{html.escape(title)}'
    f' <span class="dim">{html.escape(unit)}</span>'
    '<span class="readout"></span></figcaption>'
    f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img"'
    f' aria-label="{html.escape(title)}">'
    f'{_axes(top, ages)}{lines}'
    f'<line class="cursor" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}"'
    ' visibility="hidden"/></svg>'
    f'{_legend(series)}</figure>'
  )


def _axes(top: float, ages: Sequence[float]) -> str:
  parts = []
  for part in (0.0, 0.5, 1.0):
    y = _y(part * top, top)
    parts.append(
      f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}"'
      f' y1="{y}" y2="{y}"/><text x="{_LEFT - 6}" y="{y + 4}"'
      f' text-anchor="end">{_short(part * top)}</text>'
    )
  bottom = _HEIGHT - 5
  parts.append(
    f'<text x="{_LEFT}" y="{bottom}">{_ago(ages[0])}</text>'
    f'<text x="{_WIDTH - _RIGHT}" y="{bottom}" text-anchor="end">now</text>'
  )
  return ''.join(parts)


def _line(values: Values, top: float, number: int, filled: bool) -> str:
  colour = f's{number % _COLOURS}'
  width = _WIDTH - _LEFT - _RIGHT
  last = max(len(values) - 1, 1)
  pieces: list[list[tuple[float, float]]] = [[]]
  for i, value in enumerate(values):
    if value is not None:
      pieces[-1].append((round(_LEFT + width * i / last, 1), _y(value, top)))
    elif pieces[-1]:
      pieces.append([])
  parts = []
  for piece in filter(None, pieces):
    points = ' '.join(f'{x},{y}' for x, y in piece)
    if filled:
      zero = _y(0, top)
      ends = f'{piece[-1][0]},{zero} {piece[0][0]},{zero}'
      parts.append(f'<polygon class="{colour}" points="{points} {ends}"/>')
    parts.append(f'<polyline class="{colour}" points="{points}"/>')
  return ''.join(parts)


def _legend(series: Sequence[tuple[str, Values]]) -> str:
  items = ''.join(
    f'<li><i class="s{i % _COLOURS}"></i>{html.escape(name)}'
    f' {"–" if not values or values[-1] is None else _short(values[-1])}</li>'
    for i, (name, values) in enumerate(series)
  )
  return f'<ul class="legend">{items}</ul>'


def _y(value: float, top: float) -> float:
  height = _HEIGHT - _TOP - _BOTTOM
  return round(_TOP + height * (1 - min(value / top, 1.0)), 1)


def _nice(value: float) -> float:
  """A round number that is not below a value, for the end of an axis."""
  if value <= 0:
    return 1.0
  power = 10.0 ** math.floor(math.log10(value))
  return next(f * power for f in (1, 2, 4, 5, 10) if value <= f * power * 1.001)


def _short(value: float) -> str:
  if value >= 9999.5:
    return f'{value / 1e3:.3g}k'
  return f'{_round(value):g}'


def _round(value: float) -> float:
  """Three significant digits, and all of those before the point."""
  if value >= 1000:
    return round(value)
  return float(f'{value:.3g}')


def _ago(seconds: float) -> str:
  if seconds < 90:
    return f'{seconds:.0f} s ago'
  return f'{seconds / 60:.0f} min ago'
