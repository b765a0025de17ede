import os
import re
import subprocess
import sys

from absl.testing import absltest

_PROGRAM = '''
"""Does a thing.

  {program} --count=3
"""
from absl import flags
from saxml_ext.common import program
_COUNT = flags.DEFINE_integer('count', 7, 'How many things.')
flags.DEFINE_string('place', None, 'Where.', required=True)
flags.DEFINE_bool('fast', True, 'Hurry.')
def main(argv):
  print('ran', _COUNT.value, argv[1:])
  return 3
if __name__ == '__main__':
  program.run(main)
'''


class ProgramTest(absltest.TestCase):
  def _run(self, *words: str) -> subprocess.CompletedProcess:
    path = self.create_tempfile('doer.py', _PROGRAM.lstrip()).full_path
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
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

  def test_version_names_the_commit(self):
    done = self._run('--version')
    self.assertEqual(done.returncode, 0, done.stderr)
    self.assertRegex(
      done.stdout,
      re.compile(r'gptj-sax \d+\.\d+\.\d+ \(([0-9a-f]{12}|commit unknown)\)'),
    )

  def test_runs_otherwise(self):
    done = self._run('--place=here', '--', '--help')
    self.assertEqual(done.returncode, 3, done.stderr)
    self.assertEqual(done.stdout, "ran 7 ['--help']\n")
    self.assertEqual(self._run().returncode, 1)


if __name__ == '__main__':
  absltest.main()
