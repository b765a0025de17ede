"""Tests of lines over time."""

import html
import json
import re
import xml.etree.ElementTree as ET

from absl.testing import absltest

from saxml_ext.admin.status import plots


def plot(*series: tuple[str, list]) -> ET.Element:
  return ET.fromstring(plots.plot('T', 's', [2.0, 1.0, 0.0], series))


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

  def test_gap_where_there_is_no_value(self):
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
    text = plots.plot(name, name, [1.0, 0.0], [(name, [1.0, 1.0])])
    self.assertNotIn('<script', text)
    self.assertIn(name, html.unescape(re.sub('<[^>]*>', '', text)))

  def test_nothing_happened(self):
    [line] = points(plot(('a', [0.0, 0.0, 0.0])))
    self.assertLen({y for _, y in line}, 1)


if __name__ == '__main__':
  absltest.main()
