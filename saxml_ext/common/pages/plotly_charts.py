"""Pages with charts that plotly.js draws, in the colors of the page.

A color may be a variable of the page's style, such as `var(--c1)`. charts.js
puts the value of the light or of the dark scheme in its place.
"""

from collections.abc import Sequence
import pathlib
from typing import Any

import numpy as np
from plotly import graph_objects as go
from plotly import offline

from saxml_ext.common.pages import page_kit

Figure = dict[str, Any]

# Digits kept of coordinates: more than a screen can show.
_DIGITS = 6


def render(template: pathlib.Path, **data: Any) -> str:
  """Returns a page of a template that extends `charts.html`.

  Args:
    template: See `page_kit.render`.
    **data: The same. `figures` are figures by the ids of their charts.
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
  """Returns a figure with titled axes, and a legend of several traces."""
  found = go.Figure(
    data=list(traces),
    layout={
      'xaxis_title_text': x_title,
      'yaxis_title_text': y_title,
      'yaxis_rangemode': 'tozero' if y_from_zero else 'normal',
      'showlegend': len(traces) > 1,
      **layout,
    },
  ).to_dict()
  found['layout'].pop('template', None)  # charts.js brings the page's own.
  return found


def numbers(values: np.ndarray) -> list[float | None]:
  """Returns numbers for JSON, which has no NaN."""
  return [
    None if np.isnan(value) else float(f'{value:.{_DIGITS}g}')
    for value in values.tolist()
  ]
