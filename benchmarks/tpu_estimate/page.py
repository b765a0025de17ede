"""Renders the report as a page with a roofline and charts of program times."""

import pathlib

from plotly import graph_objects as go

from benchmarks.tpu_estimate import chips
from benchmarks.tpu_estimate import lengths as lengths_lib
from benchmarks.tpu_estimate import predict
from benchmarks.tpu_estimate import roofline
from benchmarks.tpu_estimate import rules
from benchmarks.tpu_estimate import tables
from benchmarks.tpu_estimate.compiled import costs
from saxml_ext.common import files
from saxml_ext.common.pages import plotly_charts

_TEMPLATE = pathlib.Path(__file__).parent / 'templates' / 'report.html'
_COLORS = (
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
  """Writes the page atomically.

  Args:
    path: The output file.
    text: The report.
    made: The programs of the report.
    requests: The requests. Their lengths determine the reads of a step.

  Raises:
    OSError: The file cannot be written.
  """
  page = plotly_charts.render(
    _TEMPLATE,
    title=f'{made.title}: estimated speed on {made.topology}',
    headlines=[
      line for line in text.splitlines() if line.endswith('(estimate)')
    ],
    figures={'shares': shares(made, requests), 'roofs': roofs(made, requests)},
    text=text,
  )
  with files.replacing(path) as file:
    file.write(page)


def shares(
  made: costs.Set, requests: lengths_lib.Lengths
) -> plotly_charts.Figure:
  """Returns bars of the parts of each program's time, by the central rule."""
  topology = rules.topology_of(made)
  rows = [row for row in tables.timed(made) if not row[0].endswith('a call')]
  slots = rules.live(made, requests)
  split = [
    rules.parts(cost, topology, rules.CENTRAL, slots) for _, cost in rows
  ]
  traces = [
    go.Bar(
      y=[name for name, _ in rows],
      x=[1e3 * parts[part] for parts in split],
      name=part,
      orientation='h',
      marker_color=color,
    )
    for part, color in zip(rules.PARTS, _COLORS, strict=True)
  ]
  return plotly_charts.figure(
    traces,
    'ms',
    '',
    barmode='stack',
    yaxis_autorange='reversed',
    height=160 + 45 * len(rows),
  )


def roofs(
  made: costs.Set, requests: lengths_lib.Lengths
) -> plotly_charts.Figure:
  """Returns a roofline chart with all programs, by the central rule."""
  topology = rules.topology_of(made)
  peaks = chips.BY_CHIP[topology.chip]
  intensities = [1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4]
  traces = []
  for name, peak, dash in (
    ('int8', peaks.int8, 'solid'),
    ('bfloat16', peaks.bf16, 'dot'),
  ):
    knee = peak / peaks.hbm_bandwidth
    knots = sorted([*intensities, knee])
    traces.append(
      go.Scatter(
        x=knots,
        y=[min(peak, i * peaks.hbm_bandwidth) / 1e12 for i in knots],
        mode='lines',
        name=f'{name} peak and memory',
        line={'color': 'var(--muted)', 'dash': dash},
      )
    )
  costs_by_name = dict(tables.timed(made))
  slots = rules.live(made, requests)
  points = roofline.points(made, requests, predict.policy(made))
  for i, (name, point) in enumerate(points):
    if name in costs_by_name:
      seconds = rules.seconds(
        costs_by_name[name], topology, rules.CENTRAL, slots
      )
      traces.append(
        go.Scatter(
          x=[point.operations / point.bytes],
          y=[point.operations / seconds / 1e12],
          mode='markers+text',
          text=[name],
          # Alternating positions keep the names of neighbors from overlapping.
          textposition='bottom center' if i % 2 else 'top center',
          name=name,
          marker={'size': 11},
          showlegend=False,
        )
      )
  return plotly_charts.figure(
    traces,
    'operations per byte that has to be read',
    '10^12 operations per second',
    xaxis_type='log',
    yaxis_type='log',
    height=480,
  )
