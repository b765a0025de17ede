"""The report as one HTML page that needs nothing from elsewhere."""

from collections.abc import Sequence
import html

from converters.quantize import matrix_error
from converters.quantize.report import figures
from saxml_ext.engine import variables

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;color:#222;background:#fff;
 max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:.2rem .8rem;text-align:right;border-bottom:1px solid #ddd}
th:first-child,td:first-child{text-align:left}
svg{max-width:100%;height:auto;font:12px system-ui,sans-serif}
details{margin-top:1rem}
"""
# Told apart by people who see no red or no green (Okabe and Ito).
_COLOURS = ('#0072b2', '#d55e00', '#009e73', '#cc79a7')
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 760, 300, 50, 40, 12


def page(report: figures.Report) -> str:
  """The whole page."""
  r = figures
  parts = [
    '<h1>Quantization report</h1>',
    f'<p>{html.escape(r.options_text(report.record))}.</p>',
    '<h2>Size</h2>',
    _table(r.size_rows(report)),
    '<h2>Summaries</h2>',
    _table(r.rouge_rows(report.scores)) if report.scores else _NOTHING,
    '<h2>Logits against float32</h2>',
    _table(r.logit_rows(report.logits)) if report.logits else _NOTHING,
    '<h2>Signal to noise of each matrix</h2>',
    '<p>Higher is better; 6 dB are one bit.</p>',
    _chart(report.matrices),
    '<details><summary>All matrices</summary>',
    _table(r.matrix_rows(report.matrices)),
    '</details>',
  ]
  body = '\n'.join(parts)
  return (
    '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width">'
    f'<title>Quantization report</title><style>{_STYLE}</style></head>\n'
    f'<body>\n{body}\n</body></html>\n'
  )


_NOTHING = '<p>Not measured: <code>--articles</code> was not given.</p>'


def _table(rows: Sequence[Sequence[str]]) -> str:
  def row(cells: Sequence[str], tag: str) -> str:
    return (
      '<tr>'
      + ''.join(f'<{tag}>{html.escape(cell)}</{tag}>' for cell in cells)
      + '</tr>'
    )

  return '\n'.join(
    [
      '<table>',
      row(rows[0], 'th'),
      *(row(cells, 'td') for cells in rows[1:]),
      '</table>',
    ]
  )


def _chart(matrices: Sequence[matrix_error.MatrixError]) -> str:
  """Lines of the signal to noise ratio over the layers, one for each kind."""
  lines: dict[str, list[tuple[int, float]]] = {}
  for m in matrices:
    layer = variables.layer_of(m.name)
    if layer is not None and m.relative_rms > 0:
      kind = figures.short_name(m.name).partition(' ')[2]
      lines.setdefault(kind, []).append((layer, m.snr_db))
  if not lines:
    return ''
  points = [point for line in lines.values() for point in line]
  last = max(layer for layer, _ in points)
  low = int(min(db for _, db in points) // 5) * 5
  high = int(max(db for _, db in points) // 5) * 5 + 5

  def at(layer: float, db: float) -> tuple[float, float]:
    across = _WIDTH - _LEFT - 230
    down = _HEIGHT - _TOP - _BOTTOM
    x = _LEFT + across * (layer / last if last else 0.5)
    return round(x, 1), round(_TOP + down * (high - db) / (high - low), 1)

  shapes = _axes(at, last, low, high)
  for i, (kind, line) in enumerate(sorted(lines.items())):
    colour = _COLOURS[i % len(_COLOURS)]
    path = ' '.join(f'{x},{y}' for x, y in (at(*p) for p in line))
    shapes.append(
      f'<polyline points="{path}" fill="none" stroke="{colour}"'
      ' stroke-width="2"/>'
    )
    for layer, db in line:
      x, y = at(layer, db)
      shapes.append(
        f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"><title>'
        f'{html.escape(kind)}, layer {layer}: {db:.1f} dB</title></circle>'
      )
    y = _TOP + 14 + 18 * i
    x = _WIDTH - 212
    shapes.append(
      f'<rect x="{x}" y="{y - 9}" width="10" height="10" fill="{colour}"/>'
      f'<text x="{x + 16}" y="{y}">{html.escape(kind)}</text>'
    )
  return (
    f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" role="img"'
    ' aria-label="Signal to noise ratio of each matrix by layer">'
    + ''.join(shapes)
    + '</svg>'
  )


def _axes(at, last: int, low: int, high: int) -> list[str]:
  """Grid lines with their labels."""
  shapes = []
  step = 5 if high - low <= 40 else 10
  right = at(last, low)[0] if last else at(0, low)[0] + 20
  for db in range(low, high + 1, step):
    _, y = at(0, db)
    shapes.append(
      f'<line x1="{_LEFT}" x2="{right}" y1="{y}" y2="{y}" stroke="#ddd"/>'
      f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{db}</text>'
    )
  every = max(1, -(-last // 14))
  for layer in range(0, last + 1, every):
    x, y = at(layer, low)
    shapes.append(
      f'<text x="{x}" y="{y + 18}" text-anchor="middle">{layer}</text>'
    )
  shapes.append(
    f'<text x="{(right + _LEFT) / 2}" y="{_HEIGHT - 4}"'
    ' text-anchor="middle">layer</text>'
    f'<text x="4" y="{_TOP + 4}">dB</text>'
  )
  return shapes
