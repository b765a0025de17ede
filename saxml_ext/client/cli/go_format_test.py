"""Tests of Go's numbers and durations."""

import math

from absl.testing import absltest
from absl.testing import parameterized

from saxml_ext.client.cli import go_format
from saxml_ext.common import errors


class GoFormatTest(parameterized.TestCase):
  @parameterized.parameters(
    (1e-9, '1E-09'),
    (123456789.123, '1.2345679E+08'),
    (-1234567.890123, '-1234567.9'),
    (100000.0, '100000'),
    (-0.0, '-0'),
    (0.1, '0.1'),
    (math.nan, 'NaN'),
    (math.inf, '+Inf'),
    (-math.inf, '-Inf'),
  )
  def test_general(self, value: float, text: str):
    self.assertEqual(go_format.general(value), text)

  @parameterized.parameters(
    (-2.0, '-2'),
    (0.1, '0.1'),
    (1e20, '100000000000000000000'),
    (1e21, '1e+21'),
    (123456789.0, '123456789'),
    (0.0001, '0.0001'),
    (0.00001, '1e-05'),
    (1.5e300, '1.5e+300'),
    (-0.0, '-0'),
    (math.nan, 'NaN'),
    (math.inf, '+Inf'),
  )
  def test_shortest(self, value: float, text: str):
    self.assertEqual(go_format.shortest(value), text)

  @parameterized.parameters(
    ('60s', 60.0),
    ('1m30s', 90.0),
    ('1.5h', 5400.0),
    ('500ms', 0.5),
    ('.5s', 0.5),
    ('0', 0.0),
    ('-1s', -1.0),
    ('+1s', 1.0),
  )
  def test_durations(self, text: str, seconds: float):
    self.assertAlmostEqual(go_format.parse_duration(text), seconds)

  @parameterized.parameters('', '60', 's', '1x', '1s ', '--1s', '1s2')
  def test_bad_durations(self, text: str):
    with self.assertRaisesRegex(errors.InvalidArgument, 'for example 500ms'):
      go_format.parse_duration(text)


if __name__ == '__main__':
  absltest.main()
