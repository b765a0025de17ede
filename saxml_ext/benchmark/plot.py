"""Draws the rows of a run: plot ROWS.json PICTURE.png TITLE.

A program of its own, so that only it needs matplotlib.
"""

from collections.abc import Sequence
import json
import sys

import matplotlib

matplotlib.use('Agg')
# The backend has to be chosen first.
from matplotlib import pyplot  # pylint: disable=g-import-not-at-top

_OURS, _PEER = '#0b6e4f', '#9aa5b1'


def draw(rows: Sequence[dict], path: str, title: str) -> None:
  """A bar per contender, with quartiles; a panel per mode and request count."""
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
