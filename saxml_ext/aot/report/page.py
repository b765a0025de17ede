"""The report as a page: its text, a roofline, and where a program's time goes."""

import html
import pathlib

import plotly.graph_objects as go

from saxml_ext.aot.report import lengths as lengths_lib
from saxml_ext.aot.report import predict
from saxml_ext.aot.report import roofline
from saxml_ext.aot.report import rules
from saxml_ext.aot.report import tables
from saxml_ext.aot.report.compiled import costs
from saxml_ext.common import files

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem;
  padding: 0 1rem; color: #1b1b1b; background: #fff; }}
pre {{ font-size: 13px; line-height: 1.45; overflow-x: auto; }}
.headline {{ font-size: 1.25rem; font-weight: 600; margin: 0.2rem 0; }}
</style>
<h1>{title}</h1>
{headlines}
<p>All figures of speed are estimates from compiled programs; no TPU ran them.</p>
{figures}
<h2>Report</h2>
<pre>{text}</pre>
</html>
"""
_COLOURS = (
  '#1f6f8b',
  '#e07a1f',
  '#7a8fa6',
  '#c9b458',
  '#4c9f70',
  '#b0b0b0',
  '#8c564b',
  '#9b3d6b',
)


def write(
  path: pathlib.Path,
  text: str,
  made: costs.Set,
  requests: lengths_lib.Lengths,
) -> None:
  """Writes the page, whole or not at all.

  Args:
    path: file to write.
    text: the report.
    made: the programs that it is about.
    requests: their lengths say what a step has to read.

  Raises:
    OSError: it cannot be written.
  """
  figures: list[str] = []
  for figure in (shares(made, requests), roofs(made, requests)):
    figures.append(
      figure.to_html(
        full_html=False,
        include_plotlyjs='inline' if not figures else False,
      )
    )
  marked = [line for line in text.splitlines() if line.endswith('(estimate)')]
  headlines = '\n'.join(
    f'<p class="headline">{html.escape(line)}</p>' for line in marked
  )
  title = f'{made.title}: estimated speed on {made.topology}'
  with files.replacing(path) as file:
    file.write(
      _PAGE.format(
        title=html.escape(title),
        headlines=headlines,
        figures='\n'.join(figures),
        text=html.escape(text),
      )
    )


def shares(made: costs.Set, requests: lengths_lib.Lengths) -> go.Figure:
  """Stacked bars: where each program's time goes, by the central rule."""
  topology = rules.topology_of(made)
  found = [row for row in tables.timed(made) if not row[0].endswith('a call')]
  slots = rules.live(made, requests)
  split = [
    rules.parts(cost, topology, rules.CENTRAL, slots) for _, cost in found
  ]
  figure = go.Figure()
  for part, colour in zip(rules.PARTS, _COLOURS, strict=True):
    figure.add_bar(
      y=[name for name, _ in found],
      x=[1e3 * parts[part] for parts in split],
      name=part,
      orientation='h',
      marker_color=colour,
    )
  figure.update_layout(
    barmode='stack',
    title='Where the time goes (estimates, central rule)',
    xaxis_title='ms',
    yaxis_autorange='reversed',
    template='plotly_white',
    height=140 + 45 * len(found),
    legend=dict(orientation='h', y=-0.35),
  )
  return figure


def roofs(made: costs.Set, requests: lengths_lib.Lengths) -> go.Figure:
  """Roofline: what programs reach of the chip's peaks, by the central rule."""
  topology = rules.topology_of(made)
  chip = topology.chip
  intensities = [1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4]
  figure = go.Figure()
  for name, peak, dash in (
    ('int8', chip.int8, 'solid'),
    ('bfloat16', chip.bf16, 'dot'),
  ):
    knee = peak / chip.hbm_bandwidth
    places = sorted([*intensities, knee])
    figure.add_scatter(
      x=places,
      y=[min(peak, i * chip.hbm_bandwidth) / 1e12 for i in places],
      mode='lines',
      name=f'{name} peak and memory',
      line=dict(color='#555', dash=dash),
    )
  found = dict(tables.timed(made))
  slots = rules.live(made, requests)
  points = roofline.points(made, requests, predict.policy(made))
  for i, (name, point) in enumerate(points):
    if name in found:
      seconds = rules.seconds(found[name], topology, rules.CENTRAL, slots)
      figure.add_scatter(
        x=[point.operations / point.bytes],
        y=[point.operations / seconds / 1e12],
        mode='markers+text',
        text=[name],
        # Neighbours' names would overlap.
        textposition='bottom center' if i % 2 else 'top center',
        name=name,
        marker=dict(size=11),
        showlegend=False,
      )
  figure.update_layout(
    title='Roofline of a chip (points are estimates, central rule)',
    template='plotly_white',
    height=480,
    legend=dict(orientation='h', y=-0.2),
  )
  figure.update_xaxes(
    type='log', title='operations per byte that has to be read'
  )
  figure.update_yaxes(type='log', title='10^12 operations per second')
  return figure
