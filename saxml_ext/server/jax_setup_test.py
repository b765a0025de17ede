"""Tests of messages about accelerators, with JAX itself."""

import os
import subprocess
import sys

from absl.testing import absltest

from saxml_ext.common import errors
from saxml_ext.common.machine import accelerators
from saxml_ext.common.machine.testing import fake_machine
from saxml_ext.server import jax_setup

# It runs in a separate process, because JAX looks for devices only once.
_CHECK = """
import sys
from saxml_ext.common import errors
from saxml_ext.common.machine import machine_files
from saxml_ext.server import jax_setup
jax_setup.configure(None)
try:
  jax_setup.check_devices(machine_files.MachineFiles(sys.argv[1]))
except errors.SaxError as e:
  sys.exit(e.message)
print('went on')
"""
# JAX's own plugin for CUDA raises such an error without a driver.
_PLUGIN = """
def initialize():
  raise RuntimeError('cuInit(0) failed\\nsecond line')
"""


class ConfigureTest(absltest.TestCase):
  def test_programs_writable_by_others_are_not_run(self):
    path = self.create_tempdir().full_path
    os.chmod(path, 0o777)
    with self.assertRaisesRegex(errors.InvalidArgument, 'chmod go-w'):
      jax_setup.configure(path)


class JaxSetupTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._root = self.create_tempdir('root').full_path
    self._path = self.create_tempdir('path')

  def _check(
    self, *trees, platforms='', **variables: str
  ) -> subprocess.CompletedProcess[str]:
    fake_machine.make(self._root, *trees)
    return subprocess.run(
      [sys.executable, '-c', _CHECK, self._root],
      env=os.environ
      | {
        'JAX_PLATFORMS': platforms,
        'PYTHONPATH': os.pathsep.join(
          filter(None, [self._path.full_path, *sys.path])
        ),
        # Another process may compile for TPUs at the same time.
        'ALLOW_MULTIPLE_LIBTPU_LOAD': '1',
        'TPU_LOG_DIR': 'disabled',
        **variables,
      },
      capture_output=True,
      text=True,
      check=False,
    )

  def _install_plugin(self) -> None:
    self._path.create_file('jax_plugins/xla_cuda12/__init__.py', _PLUGIN)

  def test_idle_gpu_is_reported_and_the_cpu_used(self):
    if accelerators.built_for() or 'cuda' in accelerators.drivable():
      self.skipTest('this program is for an accelerator')
    done = self._check(fake_machine.SERVER, fake_machine.H100)
    self.assertEqual(done.stdout, 'went on\n', done.stderr)
    self.assertIn('2 x NVIDIA H100 80GB HBM3', done.stderr)

  def test_unusable_gpu_ends_the_program_with_a_reason(self):
    if accelerators.built_for() == 'tpu':
      self.skipTest('this program ends for want of a TPU')
    self._install_plugin()
    done = self._check(fake_machine.SERVER, fake_machine.H100)
    self.assertEqual(done.returncode, 1)
    self.assertIn('JAX reports "cuInit(0) failed". `nvidia-smi`', done.stderr)
    self.assertNotIn('Traceback', done.stderr)

  def test_other_libtpu_version_is_refused(self):
    own = self._path.create_file('libtpu/__init__.py').full_path
    library = os.path.join(os.path.dirname(own), 'libtpu.so')
    other = self.create_tempfile('older/libtpu.so').full_path
    done = self._check(
      fake_machine.SERVER, fake_machine.TPU_V5E, TPU_LIBRARY_PATH=other
    )
    self.assertEqual(done.returncode, 1)
    self.assertIn(f'TPU_LIBRARY_PATH is {other}, so', done.stderr)
    self.assertIn('Unset TPU_LIBRARY_PATH', done.stderr)
    # The program's own library is passed to JAX, which cannot load the empty
    # file.
    done = self._check(
      fake_machine.SERVER, fake_machine.TPU_V5E, TPU_LIBRARY_PATH=library
    )
    self.assertNotIn('would load another libtpu', done.stderr)
    done = self._check(
      fake_machine.SERVER,
      fake_machine.TPU_V5E,
      platforms='cpu',
      TPU_LIBRARY_PATH=other,
    )
    self.assertEqual(done.stdout, 'went on\n', done.stderr)

  def test_requested_cpu_is_used(self):
    self._install_plugin()
    done = self._check(fake_machine.SERVER, fake_machine.H100, platforms='cpu')
    self.assertEqual(done.stdout, 'went on\n', done.stderr)
    self.assertNotIn('NVIDIA', done.stderr)

  def test_machine_without_accelerators_logs_nothing(self):
    done = self._check(fake_machine.SERVER, platforms='cpu')
    self.assertEqual(done.stdout, 'went on\n', done.stderr)
    self.assertEqual(done.stderr, '')


if __name__ == '__main__':
  absltest.main()
