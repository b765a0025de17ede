import os
import sys
from unittest import mock

from absl.testing import absltest

from serve import programs


class ProgramsTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._root = self.create_tempdir().full_path
    self.enter_context(mock.patch.object(programs, 'ROOT', self._root))

  def test_runs_the_launcher_where_there_is_one(self):
    launcher = os.path.join(self._root, 'admin', 'server')
    os.makedirs(os.path.dirname(launcher))
    with open(launcher, 'w', encoding='utf-8') as file:
      file.write('#!/bin/sh\n')
    os.chmod(launcher, 0o755)
    with mock.patch.dict(os.environ, {'PYTHONPATH': '/mine'}):
      command = programs.command('admin/server', {'port': 1, 'none': None})
    self.assertEqual(command.argv, (launcher, '--port=1'))
    self.assertNotIn('PYTHONPATH', command.env)

  def test_runs_the_module_otherwise(self):
    # A directory with this name is not a launcher.
    os.makedirs(os.path.join(self._root, 'admin', 'server'))
    with mock.patch.dict(os.environ, {'PYTHONPATH': '/mine'}):
      command = programs.command('admin/server', {'a': 'x'}, {'SAX_ROOT': 'r'})
    self.assertEqual(
      command.argv, (sys.executable, '-P', '-m', 'admin.server', '--a=x')
    )
    self.assertEqual(command.env['PYTHONPATH'], f'{self._root}:/mine')
    self.assertEqual(command.env['SAX_ROOT'], 'r')

  def test_incomplete_build_names_missing_targets(self):
    launcher = os.path.join(self._root, programs.LOADGEN_RUN)
    os.makedirs(os.path.dirname(launcher))
    with open(launcher, 'w', encoding='utf-8') as file:
      file.write('#!/bin/sh\n')
    os.chmod(launcher, 0o755)
    programs.command(programs.LOADGEN_RUN, {})
    with self.assertRaisesRegex(
      programs.ServeError,
      '//harness/systems/reference:reference_run is not included .*'
      ' //harness:main',
    ):
      programs.command(programs.REFERENCE_RUN, {})


if __name__ == '__main__':
  absltest.main()
