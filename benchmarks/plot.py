"""Plots the rows of a run: plot ROWS.json PICTURE.png TITLE.

This is a separate program, so that only it needs matplotlib.
"""

from collections.abc import Sequence
import json
import sys

import matplotlib

matplotlib.use('Agg')
# The backend must be chosen before this import.
from matplotlib import pyplot  # pylint: disable=g-import-not-at-top

_OURS, _PEER = '#0b6e4f', '#9aa5b1'
_PEERS = {'ct2': '#c05621', 'transformers': '#2b6cb0'}


def draw(rows: Sequence[dict], path: str, title: str) -> None:
  """Draws a bar with quartiles per contender, in panels by mode and requests.

  For several widths of beam search, it draws lines over the widths instead.
  """
  if len({row['beams'] for row in rows if row['beams'] > 1}) > 1:
    _draw_widths([row for row in rows if row['beams'] > 1], path, title)
    return
  panels: dict[tuple[str, int], list[dict]] = {}
  for row in rows:
    panels.setdefault((row['mode'], row['requests']), []).append(row)
  most = max(map(len, panels.values()))
  figure, axes = pyplot.subplots(
    len(panels),
    1,
    figsize=(9, 1.2 + len(panels) * (0.8 + 0.36 * most)),
    squeeze=False,
    layout='constrained',
  )
  for axis, ((mode, count), panel) in zip(axes[:, 0], panels.items()):
    _bars(axis, panel)
    axis.set_title(f'{mode}, {count} requests', loc='left', fontsize=10)
  axes[-1, 0].set_xlabel(
    'tokens per CPU second: median of the rounds; lines span the quartiles'
  )
  figure.suptitle(title, fontsize=11)
  figure.savefig(path, dpi=150)
  pyplot.close(figure)


def _draw_widths(rows: Sequence[dict], path: str, title: str) -> None:
  """Draws the CPU time of an answer by width, next to proportional growth."""
  figure, axis = pyplot.subplots(figsize=(8, 5), layout='constrained')
  lines: dict[tuple[str, str], list[dict]] = {}
  for row in sorted(rows, key=lambda r: r['beams']):
    lines.setdefault((row['engine'], row['dtype']), []).append(row)
  for (engine, dtype), line in lines.items():
    widths = [row['beams'] for row in line]
    cost = [1000 * row['cpu_seconds_per_request'] for row in line]
    ours, style = engine == 'ours', '--' if dtype == 'float32' else '-'
    colour = _OURS if ours else _PEERS.get(engine, _PEER)
    axis.plot(
      widths, cost, style, marker='o', color=colour, label=f'{engine} {dtype}'
    )
    if ours:
      grown = [cost[0] * width / widths[0] for width in widths]
      axis.plot(widths, grown, ':', color=colour, linewidth=1)
  axis.set_xscale('log')
  axis.set_yscale('log')
  widths = sorted({row['beams'] for row in rows})
  axis.set_xticks(widths, [str(width) for width in widths])
  axis.minorticks_off()
  axis.set_xlabel('beams (dotted: our cost in proportion to the width)')
  axis.set_ylabel('CPU ms per answer, median of the rounds')
  axis.legend(fontsize=8)
  for side in ('top', 'right'):
    axis.spines[side].set_visible(False)
  figure.suptitle(title, fontsize=10)
  figure.savefig(path, dpi=150)
  pyplot.close(figure)


def _bars(axis, panel: Sequence[dict]) -> None:
  panel = sorted(panel, key=lambda r: r['tokens_per_cpu_second'])
  medians = [r['tokens_per_cpu_second'] for r in panel]
  quartiles = [r['tokens_per_cpu_second_quartiles'] for r in panel]
  spread = [
    [m - low for m, (low, _) in zip(medians, quartiles)],
    [high - m for m, (_, high) in zip(medians, quartiles)],
  ]
  names = [f'{r["engine"]} {r["dtype"]}' for r in panel]
  colours = [_OURS if r['engine'] == 'ours' else _PEER for r in panel]
  bars = axis.barh(
    names, medians, xerr=spread, color=colours, ecolor='#333333', capsize=3
  )
  axis.bar_label(bars, fmt=' %.0f', padding=4, fontsize=8)
  axis.margins(x=0.12)
  axis.tick_params(labelsize=8)
  for side in ('top', 'right'):
    axis.spines[side].set_visible(False)


def main(argv: Sequence[str]) -> None:
  rows_path, picture, title = argv[1:]
  with open(rows_path, encoding='utf-8') as file:
    draw(json.load(file), picture, title)


if __name__ == '__main__':
  main(sys.argv)
