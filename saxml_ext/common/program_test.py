import os
import re
import shutil
import subprocess
import sys

from absl import flags
from absl.testing import absltest
from absl.testing import parameterized

from saxml_ext.common import flag_rules
from saxml_ext.common import program

_PROGRAM = '''
"""Does a thing.

  {program} --count=3
"""
import os
from absl import flags
from saxml_ext.common import flag_rules
from saxml_ext.common import program
_COUNT = flags.DEFINE_integer('count', 7, 'How many things.')
flags.DEFINE_string('place', None, 'Where.', required=True)
_FAST = flags.DEFINE_bool('fast', True, 'Hurry.')
flags.DEFINE_multi_string('by', [], 'Means.')
flag_rules.act_only('with --fast', lambda: _FAST.value, 'count by')
def main(argv):
  print('ran', _COUNT.value, argv[1:])
  return 3
if __name__ == '__main__':
  program.run(
    main, takes_words=os.environ.get('WORDS'), hints={'speed': 'Use --fast'}
  )
'''


class ProgramTest(absltest.TestCase):
  def _run(self, *words: str, **env: str) -> subprocess.CompletedProcess:
    path = self.create_tempfile('doer.py', _PROGRAM.lstrip()).full_path
    env = os.environ | {'PYTHONPATH': os.pathsep.join(sys.path)} | env
    return subprocess.run(
      [sys.executable, path, *words],
      env=env,
      capture_output=True,
      text=True,
      check=False,
    )

  def test_help_shows_all_own_flags(self):
    done = self._run('--help')
    self.assertEqual(done.returncode, 0, done.stderr)
    self.assertStartsWith(done.stdout, 'Does a thing.\n\n  doer --count=3')
    self.assertIn('  --count (default 7)\n      How many things.', done.stdout)
    self.assertIn('--place\n', done.stdout)
    self.assertIn('--[no]fast (default on)', done.stdout)
    self.assertNotIn('stderrthreshold', done.stdout)

  def test_unknown_flags_and_values_name_a_remedy(self):
    for word, text in (
      (
        '--cuont=3',
        "doer: Unknown command line flag 'cuont'. Did you mean: count?"
        ' To see all flags, use --help.\n',
      ),
      ('--speed=3', "doer: Unknown command line flag 'speed'. Use --fast.\n"),
      ('--count=x', 'To see all flags, use --help.\n'),
    ):
      done = self._run('--place=x', word)
      self.assertEqual(done.returncode, 1)
      self.assertEndsWith(done.stderr, text)
      self.assertNotIn('helpshort', done.stderr)

  def test_version_names_the_commit(self):
    done = self._run('--version')
    self.assertEqual(done.returncode, 0, done.stderr)
    self.assertRegex(
      done.stdout,
      re.compile(r'gptj-sax \d+\.\d+\.\d+ \(([0-9a-f]{12}|commit unknown)\)'),
    )

  def test_commit_requires_the_root_of_the_checkout(self):
    for depth, known in (('', True), ('lib/site-packages', False)):
      root = self.create_tempdir(f'theirs{known}').full_path
      copy = os.path.join(root, depth, 'saxml_ext', 'common')
      os.makedirs(copy)
      for module in (program, flag_rules):
        shutil.copy(module.__file__, copy)
      for package in (os.path.dirname(copy), copy):
        open(os.path.join(package, '__init__.py'), 'x').close()
      git = os.path.join(root, '.git')
      os.mkdir(git)
      with open(os.path.join(git, 'HEAD'), 'w', encoding='utf-8') as file:
        file.write('0123456789ab' + 28 * 'f')
      code = 'from saxml_ext.common import program; print(program.commit())'
      path = os.pathsep.join([os.path.join(root, depth), *sys.path])
      output = subprocess.check_output(
        [sys.executable, '-c', code],
        env=os.environ | {'PYTHONPATH': path},
        cwd=root,
        text=True,
      )
      self.assertEqual(output.strip(), '0123456789ab' if known else '')

  def test_version_in_an_image_names_the_commit_of_the_build(self):
    root = self.create_tempdir().full_path
    copy = os.path.join(root, 'saxml_ext', 'common')
    os.makedirs(copy)
    for module in (program, flag_rules):
      shutil.copy(module.__file__, copy)
    for package in (os.path.dirname(copy), copy):
      open(os.path.join(package, '__init__.py'), 'x').close()
    code = 'from saxml_ext.common import program; print(program.commit())'
    for commit, shown in (
      ('0123456789ab' + 28 * 'f', '0123456789ab'),
      ('0123456789ab' + 28 * 'f' + '-dirty', '0123456789ab-dirty'),
    ):
      printed = subprocess.check_output(
        [sys.executable, '-c', code],
        env=os.environ
        | {
          'PYTHONPATH': os.pathsep.join([root, *sys.path]),
          program.COMMIT_VARIABLE: commit,
        },
        cwd=root,
        text=True,
      )
      self.assertEqual(printed.strip(), shown)

  def test_arguments_reach_the_program(self):
    done = self._run('--place=here', '--', '--help', WORDS='1')
    self.assertEqual(done.returncode, 3, done.stderr)
    self.assertEqual(done.stdout, "ran 7 ['--help']\n")
    self.assertEqual(self._run().returncode, 1)

  def test_flags_without_effect_are_refused(self):
    for words, message in (
      (['--nofast', '--count=7'], '--count=7 has no effect. It acts only with'),
      (['--by=a', '--by=b', '--nofast'], '--by=a --by=b has no effect'),
      (['more'], "unexpected argument 'more'"),
    ):
      done = self._run('--place=here', *words)
      self.assertEqual(done.returncode, 1)
      self.assertStartsWith(done.stderr, f'doer: {message}')
    for words in (['--count=7'], ['--nofast', '--place=']):
      self.assertEqual(self._run('--place=here', *words).returncode, 3)


class DashesTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self._known = flags.FlagValues()
    flags.DEFINE_string('log_path', None, '', flag_values=self._known)
    flags.DEFINE_bool('dry_run', True, '', flag_values=self._known)
    flags.DEFINE_bool('accuracy', False, '', flag_values=self._known)

  def _parse(self, *words: str) -> list[str]:
    argv = ['program', *words]
    return self._known(program.underscored(argv, self._known))[1:]

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
