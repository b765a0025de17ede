"""Tests of command lines."""

from absl.testing import absltest
from absl.testing import parameterized

from saxml_ext.client.cli import go_flags

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
  def test_where_flags_end(self, args: list[str], rest: list[str]):
    self.assertEqual(go_flags.parse(_FLAGS, args).rest, rest)

  @parameterized.parameters(
    (['-x'], 'not defined: -x'),
    (['-n'], 'needs an argument: -n'),
    (['-n=a'], '"a" is no integer'),
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


if __name__ == '__main__':
  absltest.main()
