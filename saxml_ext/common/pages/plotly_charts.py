"""Renders pages with charts that plotly.js draws, in the colors of the page.

A color may be a variable of the page's style, such as `var(--c1)`. charts.js
replaces it with its value in the light or the dark scheme.
"""

from collections.abc import Sequence
import pathlib
from typing import Any

import numpy as np
from plotly import graph_objects as go
from plotly import offline

from saxml_ext.common.pages import page_kit

Figure = dict[str, Any]

# Coordinates keep this many digits, which is more than a screen can show.
_DIGITS = 6


def render(template: pathlib.Path, **data: Any) -> str:
  """Renders a page from a template that extends `charts.html`.

  Args:
    template: The template; see `page_kit.render`.
    **data: The values that the template shows. `figures` maps the id of each
      chart to its figure.
  """
  defaults = {'figures': {}, 'plotly_js': offline.get_plotlyjs()}
  return page_kit.render(template, **(defaults | data))


def figure(
  traces: Sequence[Any],
  x_title: str,
  y_title: str,
  y_from_zero: bool = False,
  **layout: Any,
) -> Figure:
  """Returns a figure with titled axes, and a legend for several traces."""
  chart = go.Figure(
    data=list(traces),
    layout={
      'xaxis_title_text': x_title,
      'yaxis_title_text': y_title,
      'yaxis_rangemode': 'tozero' if y_from_zero else 'normal',
      'showlegend': len(traces) > 1,
      **layout,
    },
  ).to_dict()
  chart['layout'].pop('template', None)  # charts.js has its own.
  return chart


def numbers(values: np.ndarray) -> list[float | None]:
  """Converts numbers for JSON: NaN, which JSON lacks, becomes None."""
  return [
    None if np.isnan(value) else float(f'{value:.{_DIGITS}g}')
    for value in values.tolist()
  ]
