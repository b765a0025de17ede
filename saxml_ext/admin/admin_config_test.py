"""Tests of admin_config."""

import os
import subprocess
import sys

from absl.testing import absltest
from absl.testing import parameterized

from saxml_ext.admin import admin_config
from saxml_ext.common import cell
from saxml_ext.common import errors
from saxml_ext.common.testing import golden


class ConfigureTest(parameterized.TestCase):
  def test_writes_the_recorded_bytes(self):
    row = next(
      r for r in golden.load('files.json') if r['label'] == 'after admin_config'
    )
    root = self.create_tempdir().full_path
    path = admin_config.configure(
      root, '/sax/test', '/data/sax-fs-root', 'acl/all'
    )
    self.assertEqual(path, root + '/sax/test/config.proto')
    with open(path, 'rb') as f:
      self.assertEqual(f.read().hex(), row['hex'])
    self.assertEqual(oct(os.stat(path).st_mode & 0o777), row['mode'])

  def test_overwrites(self):
    root = self.create_tempdir().full_path
    for fs_root in ('/a', '/b'):
      admin_config.configure(root, '/sax/test', fs_root, 'acl/all')
    self.assertEqual(cell.read_config(root, '/sax/test').fs_root, '/b')

  @parameterized.parameters(
    ('', '/f', 'a', '--sax_cell is empty'),
    ('/sax/test', '', 'a', '--fs_root is empty'),
    ('/sax/test', '/f', '', '--admin_acl is empty'),
    ('/sax/Test', '/f', 'a', 'cell name "Test" must match'),
    ('test', '/f', 'a', 'should have the form'),
  )
  def test_refuses(self, cell_id, fs_root, acl, message):
    root = self.create_tempdir().full_path
    with self.assertRaisesRegex(errors.InvalidArgument, message):
      admin_config.configure(root, cell_id, fs_root, acl)
    self.assertEmpty(os.listdir(root))


class MainTest(absltest.TestCase):
  def run_main(
    self, *args: str, **variables: str
  ) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith('SAX_')}
    env.update(variables)
    env['PYTHONPATH'] = os.pathsep.join(sys.path)
    return subprocess.run(
      [sys.executable, admin_config.__file__, *args],
      env=env,
      check=False,
      capture_output=True,
      text=True,
    )

  def test_exit_codes(self):
    root = self.create_tempdir().full_path
    good = ['--sax_cell=/sax/test', '--fs_root=/f', '--sax_root=' + root]
    done = self.run_main(*good)
    self.assertEqual(done.returncode, 0)
    self.assertEqual(done.stdout, '')
    path = f'{root}/sax/test/config.proto'
    self.assertEqual(done.stderr, f'Created config {path}\n')
    for i, flag in enumerate(('sax_cell', 'fs_root', 'sax_root')):
      bad = self.run_main(*(good[:i] + good[i + 1 :]))
      self.assertEqual(bad.returncode, 255)
      self.assertIn(flag, bad.stderr)
      self.assertNotIn('Traceback', bad.stderr)

  def test_environment_stands_in_for_flags(self):
    root = self.create_tempdir().full_path
    env = {'SAX_ROOT': root, 'SAX_CELL': '/sax/env', 'SAX_FS_ROOT': '/e'}
    self.assertEqual(self.run_main(**env).returncode, 0)
    self.assertEqual(cell.read_config(root, '/sax/env').fs_root, '/e')
    flags = '--sax_cell=/sax/flag', '--fs_root=/f'
    self.assertEqual(self.run_main(*flags, **env).returncode, 0)
    self.assertEqual(cell.read_config(root, '/sax/flag').fs_root, '/f')

  def test_help_names_the_environment(self):
    text = self.run_main('--help').stdout
    for variable in ('$SAX_ROOT', '$SAX_CELL', '$SAX_FS_ROOT'):
      self.assertIn(variable, text)


if __name__ == '__main__':
  absltest.main()
