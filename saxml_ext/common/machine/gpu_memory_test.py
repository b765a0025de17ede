"""Tests of the share of a GPU's memory."""

import os
from unittest import mock

from absl.testing import absltest
from absl.testing import flagsaver
from absl.testing import parameterized

from saxml_ext.common import errors
from saxml_ext.common.machine import accelerators
from saxml_ext.common.machine import gpu_memory
from saxml_ext.common.machine.testing import fake_machine

_VARIABLE = 'XLA_CLIENT_MEM_FRACTION'
_OLDER = 'XLA_PYTHON_CLIENT_MEM_FRACTION'
_SMI = '#!/bin/sh\necho 143771\necho 81559\n'


class GpuMemoryTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    root = self.create_tempdir().full_path
    self._files = fake_machine.make(
      root, fake_machine.SERVER, fake_machine.H100
    )
    # No plugin is needed, because JAX is not used.
    self.enter_context(
      mock.patch.object(accelerators, 'drivable', lambda: ('cuda',))
    )
    self._environment: dict[str, str] = {}

  def _apply(self, fraction: float | None = None, **variables: str):
    self._environment.clear()
    self._environment.update(variables)
    with flagsaver.flagsaver(memory_fraction=fraction):
      return gpu_memory.apply(self._files, self._environment)

  def test_a_server_uses_most_of_the_gpu(self):
    self.assertEqual(self._apply(), 0.92)
    self.assertEqual(self._environment, {_VARIABLE: '0.92'})

  def test_flag_sets_the_share(self):
    self.assertEqual(self._apply(0.5), 0.5)
    self.assertEqual(self._environment, {_VARIABLE: '0.5'})

  @parameterized.parameters(_VARIABLE, _OLDER)
  def test_variable_of_the_user_stays(self, name):
    self.assertEqual(self._apply(None, **{name: '.3'}), 0.3)
    self.assertEqual(self._environment, {name: '.3'})
    with self.assertRaisesRegex(errors.InvalidArgument, f'{name}=.3 are both'):
      self._apply(0.5, **{name: '.3'})

  @parameterized.parameters(0.0, -1.0, 1.5, float('nan'))
  def test_other_numbers_are_refused(self, fraction):
    with self.assertRaisesRegex(errors.InvalidArgument, 'above 0 and at most'):
      self._apply(fraction)

  def test_invalid_variable_is_refused(self):
    with self.assertRaisesRegex(errors.InvalidArgument, f'{_VARIABLE}=90%'):
      self._apply(None, **{_VARIABLE: '90%'})

  def test_flag_without_a_gpu_is_refused(self):
    self.assertIsNone(self._apply(None, JAX_PLATFORMS='cpu'))
    with self.assertRaisesRegex(errors.InvalidArgument, 'no NVIDIA GPU'):
      self._apply(0.9, JAX_PLATFORMS='cpu')
    self.assertNotIn(_VARIABLE, self._environment)

  def test_smallest_gpu_counts(self):
    path = self.create_tempdir()
    os.chmod(path.create_file('nvidia-smi', _SMI).full_path, 0o755)
    with mock.patch.dict(os.environ, PATH=f'{path.full_path}:/usr/bin:/bin'):
      self.assertEqual(gpu_memory.usable_bytes(0.5), 81559 * 2**19)
      self.assertEqual(gpu_memory.usable_bytes(None), 0)

  def test_silent_driver_gives_no_number(self):
    path = self.create_tempdir()
    with mock.patch.dict(os.environ, PATH=path.full_path):
      self.assertEqual(gpu_memory.usable_bytes(0.5), 0)
      os.chmod(
        path.create_file('nvidia-smi', '#!/bin/sh\nexit 9\n').full_path, 0o755
      )
      self.assertEqual(gpu_memory.usable_bytes(0.5), 0)


if __name__ == '__main__':
  absltest.main()
