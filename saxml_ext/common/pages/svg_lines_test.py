"""Tests of lines over time."""

import html
import json
import pathlib
import re
import tempfile
import xml.etree.ElementTree as ET

from absl.testing import absltest

from saxml_ext.common.pages import page_kit
from saxml_ext.common.pages import svg_lines

_TEMPLATE = tempfile.TemporaryDirectory()


def markup(figure: svg_lines.Figure) -> str:
  path = pathlib.Path(_TEMPLATE.name, 'lines.html')
  path.write_text('{{ parts.lines(figure) }}', 'utf-8')
  return page_kit.render(path, figure=figure)


def plot(*series: tuple[str, list]) -> ET.Element:
  figure = svg_lines.over_time('T', 's', [2.0, 1.0, 0.0], series)
  return ET.fromstring(markup(figure))


def points(figure: ET.Element) -> list[list[tuple[float, float]]]:
  return [
    [tuple(map(float, p.split(','))) for p in line.get('points').split()]
    for line in figure.iter('polyline')
  ]


class PlotsTest(absltest.TestCase):
  def test_line_goes_from_the_oldest_to_the_newest(self):
    [line] = points(plot(('a', [0.0, 5.0, 10.0])))
    (x0, y0), (x1, y1), (x2, y2) = line
    self.assertLess(x0, x1)
    self.assertAlmostEqual(x2 - x1, x1 - x0, delta=0.2)
    self.assertGreater(y0, y1)
    self.assertAlmostEqual(y0 - y1, y1 - y2, delta=0.2)

  def test_missing_value_is_a_gap(self):
    lines = points(plot(('a', [1.0, None, 2.0]), ('b', [None] * 3)))
    self.assertEqual([len(line) for line in lines], [1, 1])

  def test_names_are_escaped_and_values_readable(self):
    name = '<script>"&'
    figure = plot((name, [0.0, 0.12345, 12345.6]))
    self.assertIn(name, ''.join(figure.itertext()))
    self.assertIn('12.3k', ''.join(figure.itertext()))
    data = json.loads(figure.get('data-plot'))
    self.assertEqual(data['values'], [[0, 0.123, 12346]])
    self.assertEqual(data['ages'], [2, 1, 0])
    lines = [(name, [1.0, 1.0])]
    text = markup(svg_lines.over_time(name, name, [1.0, 0.0], lines))
    self.assertNotIn('<script', text)
    self.assertIn(name, html.unescape(re.sub('<[^>]*>', '', text)))

  def test_empty_history_has_no_line(self):
    [line] = points(plot(('a', [0.0, 0.0, 0.0])))
    self.assertLen({y for _, y in line}, 1)


if __name__ == '__main__':
  absltest.main()
