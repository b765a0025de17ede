import importlib
import pathlib
import sys

from absl.testing import absltest

from saxml_ext.common.machine import accelerators
from saxml_ext.common.machine.testing import fake_machine

_ROOT = pathlib.Path(accelerators.__file__).resolve().parents[3]
_SERVER = str(_ROOT / 'saxml_ext' / 'server' / 'server.py')


class AcceleratorsTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._root = self.create_tempdir().full_path

  def _detect(self, *trees, **environment) -> accelerators.Accelerator | None:
    files = fake_machine.make(self._root, *trees)
    return accelerators.detect(files, environment)

  def _idle(self, tree, kinds=(), program=_SERVER, **environment) -> str:
    files = fake_machine.make(self._root, tree)
    return accelerators.idle(kinds, files, environment, program)

  def test_tpu_chips_are_detected(self):
    self.assertEqual(
      self._detect(fake_machine.SERVER, fake_machine.TPU_V5E),
      accelerators.Accelerator('tpu', '4 x TPU v5e'),
    )

  def test_gpus_are_detected(self):
    self.assertEqual(
      self._detect(fake_machine.SERVER, fake_machine.H100),
      accelerators.Accelerator('cuda', '2 x NVIDIA H100 80GB HBM3'),
    )

  def test_gpu_without_a_driver_name_is_detected(self):
    self.assertEqual(
      self._detect({'/dev/dxg': ''}),
      accelerators.Accelerator('cuda', '1 x NVIDIA GPU'),
    )

  def test_driver_without_a_gpu_is_no_accelerator(self):
    self.assertIsNone(self._detect({'/dev/nvidiactl': ''}))

  def test_machine_without_accelerators_has_none(self):
    self.assertIsNone(self._detect(fake_machine.SERVER))
    self.assertEqual(self._idle(fake_machine.SERVER), '')

  def test_idle_accelerator_is_reported_with_the_command(self):
    message = self._idle(fake_machine.TPU_V5E)
    self.assertIn('4 x TPU v5e', message)
    self.assertIn('has no libtpu', message)
    self.assertIn(
      '`./bazelw run --config=tpu //saxml_ext/server:server`', message
    )
    self.assertIn('JAX_PLATFORMS=cpu', message)

  def test_pip_command_is_reported_outside_the_repository(self):
    message = self._idle(fake_machine.H100, program='/venv/bin/server')
    self.assertIn("pip install 'jax[cuda13]'", message)

  def test_used_accelerators_are_not_reported(self):
    self.assertEqual(self._idle(fake_machine.TPU_V5E, ['tpu']), '')
    self.assertNotEqual(self._idle(fake_machine.TPU_V5E, ['cuda']), '')

  def test_idle_accelerator_is_not_reported_if_the_cpu_is_requested(self):
    tree = fake_machine.H100
    self.assertEqual(self._idle(tree, JAX_PLATFORMS='cpu'), '')
    self.assertNotEqual(self._idle(tree, JAX_PLATFORMS='cuda'), '')

  def test_platforms_map_to_kinds(self):
    for kind, platforms, expected in (
      ('tpu', None, True),
      ('tpu', '', True),
      ('tpu', 'tpu,cpu', True),
      ('tpu', 'cpu', False),
      ('cuda', 'gpu, cpu', True),
      ('cuda', 'tpu', False),
    ):
      with self.subTest(kind=kind, platforms=platforms):
        self.assertEqual(accelerators.is_meant(kind, platforms), expected)

  def test_unusable_accelerator_message_names_devices_and_remedy(self):
    for kind, sign in (('tpu', '0x1ae0'), ('cuda', '/dev/nvidia[0-9]*')):
      message = accelerators.unusable(kind)
      self.assertIn(sign, message)
      self.assertIn(f'omit --config={kind}', message)
    self.assertIn(
      'cannot use one: no driver. `nvidia-smi` shows',
      accelerators.unusable('cuda', 'no driver'),
    )

  def test_drivable_follows_the_modules_on_the_path(self):
    path = self.create_tempdir()
    path.create_file('jax_plugins/xla_cuda12/__init__.py')
    sys.path.append(path.full_path)
    self.addCleanup(sys.path.remove, path.full_path)
    importlib.invalidate_caches()
    self.assertIn('cuda', accelerators.drivable())

  def test_gpu_modules_expect_a_gpu_only_on_gpu_machines(self):
    path = self.create_tempdir()
    path.create_file('jax_plugins/xla_cuda12/__init__.py')
    sys.path.append(path.full_path)
    self.addCleanup(sys.path.remove, path.full_path)
    importlib.invalidate_caches()
    files = fake_machine.make(self._root, fake_machine.SERVER)
    if accelerators.built_for() != 'cuda':
      self.assertNotIn('cuda', accelerators.used('', files, {}))
    files = fake_machine.make(self._root, fake_machine.H100)
    self.assertIn('cuda', accelerators.used('', files, {}))


class TpuTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._root = self.create_tempdir().full_path

  def _detect(self, tree=None, **environment) -> accelerators.Tpu | None:
    return accelerators.detect_tpu(
      fake_machine.make(self._root, tree or {}), environment
    )

  def test_pci_chips_are_detected(self):
    self.assertEqual(
      self._detect(fake_machine.TPU_V5E), accelerators.Tpu('TPU v5e', 4)
    )

  def test_container_chips_are_detected(self):
    nodes = {'/dev/vfio/vfio': '', '/dev/vfio/0': '', '/dev/vfio/1': ''}
    self.assertEqual(
      self._detect(nodes, TPU_ACCELERATOR_TYPE='v5litepod-8'),
      accelerators.Tpu('TPU v5e', 2),
    )
    nodes = {'/dev/accel0': '', '/dev/accel1': ''}
    self.assertEqual(
      self._detect(nodes, TPU_ACCELERATOR_TYPE='v4-8'),
      accelerators.Tpu('TPU v4', 2),
    )
    self.assertEqual(
      self._detect(TPU_ACCELERATOR_TYPE='v6e-8'), accelerators.Tpu('TPU v6e', 2)
    )

  def test_machine_without_chips_has_none(self):
    self.assertIsNone(self._detect(fake_machine.SERVER))
    self.assertIsNone(self._detect(TPU_ACCELERATOR_TYPE='v5litepod-8'))

  def test_device_files_alone_have_no_kind(self):
    self.assertIsNone(self._detect({'/dev/vfio/0': ''}))


if __name__ == '__main__':
  absltest.main()
