"""Tests the flags, numbers and durations of Go programs."""

import math

from absl.testing import absltest
from absl.testing import parameterized

from saxml_ext.client.cli import go_flags
from saxml_ext.common import errors

_FLAGS = (
  go_flags.Flag('s', '', 'a text'),
  go_flags.Flag('n', -1, 'a number'),
  go_flags.Flag('b', False, 'a switch'),
  go_flags.Flag('d', 60.0, 'a duration'),
)


class GoFlagsTest(parameterized.TestCase):
  def test_defaults(self):
    got = go_flags.parse(_FLAGS, [])
    self.assertEqual(got.values, {'s': '', 'n': -1, 'b': False, 'd': 60.0})
    self.assertEqual((got.given, got.rest), (frozenset(), []))

  def test_forms(self):
    got = go_flags.parse(
      _FLAGS, ['-s=a=b', '--n', '3', '-b', '-d=1m', 'x', '-s=late']
    )
    self.assertEqual(got.values, {'s': 'a=b', 'n': 3, 'b': True, 'd': 60.0})
    self.assertEqual(got.given, {'s', 'n', 'b', 'd'})
    self.assertEqual(got.rest, ['x', '-s=late'])

  @parameterized.parameters(
    (['-b=false', 'x'], ['x']),
    (['-b', 'false'], ['false']),
    (['-', '-b'], ['-', '-b']),
    (['--', '-b'], ['-b']),
  )
  def test_flags_end_at_the_first_word(self, args: list[str], rest: list[str]):
    self.assertEqual(go_flags.parse(_FLAGS, args).rest, rest)

  @parameterized.parameters(
    (['-x'], 'not defined: -x'),
    (['-n'], 'needs an argument: -n'),
    (['-n=a'], '"a" is not an integer'),
    (['-b=maybe'], '"maybe" is not true or false'),
    (['-d=60'], '"60" is not a duration'),
  )
  def test_mistakes(self, args: list[str], message: str):
    with self.assertRaisesRegex(go_flags.UsageError, message):
      go_flags.parse(_FLAGS, args)

  def test_help(self):
    for arg in ('-h', '--help'):
      with self.assertRaises(go_flags.HelpWanted):
        go_flags.parse(_FLAGS, [arg])


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
    self.assertEqual(go_flags.general(value), text)

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
    self.assertEqual(go_flags.shortest(value), text)

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
    self.assertAlmostEqual(go_flags.parse_duration(text), seconds)

  @parameterized.parameters('', '60', 's', '1x', '1s ', '--1s', '1s2')
  def test_bad_durations(self, text: str):
    with self.assertRaisesRegex(errors.InvalidArgument, 'for example 500ms'):
      go_flags.parse_duration(text)


if __name__ == '__main__':
  absltest.main()
