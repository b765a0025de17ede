"""Tests of compile_programs and first_token, each in a separate process.

A process does not compile the same program twice. So only a new process shows
that all programs until the first token come from the set.
"""

import os
import re
import subprocess
import sys
import tempfile

from absl.testing import absltest

from saxml_ext.server.testing import small_model

_START = """
from saxml_ext.common import program
from {package} import {program}
from saxml_ext.server.testing import small_model
program.run({program}.main)
"""
_PACKAGES = {
  'compile_programs': 'saxml_ext.server.commands',
  'first_token': 'benchmarks.parts',
}
_TIMEOUT = 600


class FirstTokenTest(absltest.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.directory = tempfile.mkdtemp(dir=absltest.TEST_TMPDIR.value)
    cls.checkpoint = small_model.write(os.path.join(cls.directory, 'pax'))

  def _run(self, program: str, *flags: str) -> subprocess.CompletedProcess:
    return subprocess.run(
      [
        sys.executable,
        '-c',
        _START.format(package=_PACKAGES[program], program=program),
        f'--params={small_model.MODEL_PATH}',
        f'--checkpoint={self.checkpoint}',
        *flags,
      ],
      env={
        **os.environ,
        'PYTHONPATH': os.pathsep.join(filter(None, sys.path)),
        'JAX_PLATFORMS': 'cpu',
      },
      capture_output=True,
      text=True,
      timeout=_TIMEOUT,
    )

  def _compilations(self, *flags: str) -> int:
    done = self._run('first_token', *flags)
    self.assertEqual(done.returncode, 0, done.stderr)
    for stage in ('imports', 'model', 'first token'):
      self.assertRegex(done.stdout, rf'(?m)^{stage} +[\d.]+ s, +[\d.]+ CPU s$')
    match = re.search(r'(?m)^(\d+) compilations$', done.stdout)
    assert match is not None, done.stdout
    return int(match[1])

  def test_program_set_avoids_all_compilations(self):
    path = os.path.join(self.directory, 'set')
    done = self._run('compile_programs', f'--out={path}')
    self.assertEqual(done.returncode, 0, done.stderr)
    self.assertRegex(done.stdout, r'compiled 1 of \d+: decode 1 \(')
    self.assertEqual(self._compilations(f'--programs={path}'), 0)

  def test_compilations_are_counted(self):
    self.assertGreater(self._compilations(), 4)

  def test_mistakes_are_reported(self):
    out = f'--out={self.directory}/none'
    for program, flags, message in (
      (
        'compile_programs',
        [out, '--override=A'],
        '--override=A: .* Write KEY=VALUE',
      ),
      (
        'compile_programs',
        [out, '--params=a.b'],
        'no serving params are named',
      ),
      ('compile_programs', ['--out=/proc/none'], 'compile_programs: .*/proc'),
      ('first_token', ['--programs=/nowhere'], '/nowhere is not a program set'),
      (
        'first_token',
        ['--prompt=17'],
        'the prompt has 17 tokens, above the limit of 16',
      ),
    ):
      with self.subTest(program, flags=flags):
        done = self._run(program, *flags)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, message)
        self.assertNotIn('Traceback', done.stderr)
    self.assertFalse(os.path.exists(f'{self.directory}/none'))


if __name__ == '__main__':
  absltest.main()
