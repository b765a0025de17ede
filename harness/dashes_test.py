from absl import flags
from absl.testing import absltest
from absl.testing import parameterized

from harness import dashes


class DashesTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self._known = flags.FlagValues()
    flags.DEFINE_string('log_path', None, '', flag_values=self._known)
    flags.DEFINE_bool('dry_run', True, '', flag_values=self._known)
    flags.DEFINE_bool('accuracy', False, '', flag_values=self._known)

  def _parse(self, *words: str) -> list[str]:
    argv = ['program', *words]
    return self._known(dashes.underscored(argv, self._known))[1:]

  @parameterized.parameters(
    ('--log-path=a-b',), ('--log_path=a-b',), ('-log-path', 'a-b')
  )
  def test_either_spelling(self, *words):
    self.assertEqual(self._parse(*words), [])
    self.assertEqual(self._known.log_path, 'a-b')

  @parameterized.parameters('--no-dry-run', '--nodry_run', '--nodry-run')
  def test_switches_off(self, word):
    self._parse(word, '--accuracy')
    self.assertFalse(self._known.dry_run)
    self.assertTrue(self._known.accuracy)

  def test_values_and_arguments_keep_their_dashes(self):
    self.assertEqual(
      self._parse('--log_path', '--my-file', 'a-b', '--', '--log-path=x'),
      ['a-b', '--log-path=x'],
    )
    self.assertEqual(self._known.log_path, '--my-file')

  def test_unknown_flag_is_reported_as_it_was_typed(self):
    with self.assertRaisesRegex(flags.UnrecognizedFlagError, 'log-paht'):
      self._parse('--log-paht=x')


if __name__ == '__main__':
  absltest.main()
