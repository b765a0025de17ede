from absl.testing import absltest

from saxml_ext.common.machine import tpu
from saxml_ext.common.machine.testing import fake_machine


class TpuTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._root = self.create_tempdir().full_path

  def _detect(self, tree=None, **environment) -> tpu.Tpu | None:
    return tpu.detect(fake_machine.make(self._root, tree or {}), environment)

  def test_chips_on_the_bus(self):
    self.assertEqual(self._detect(fake_machine.TPU_V5E), tpu.Tpu('TPU v5e', 4))

  def test_chips_that_a_container_shows(self):
    nodes = {'/dev/vfio/vfio': '', '/dev/vfio/0': '', '/dev/vfio/1': ''}
    self.assertEqual(
      self._detect(nodes, TPU_ACCELERATOR_TYPE='v5litepod-8'),
      tpu.Tpu('TPU v5e', 2),
    )
    nodes = {'/dev/accel0': '', '/dev/accel1': ''}
    self.assertEqual(
      self._detect(nodes, TPU_ACCELERATOR_TYPE='v4-8'), tpu.Tpu('TPU v4', 2)
    )
    self.assertEqual(
      self._detect(TPU_ACCELERATOR_TYPE='v6e-8'), tpu.Tpu('TPU v6e', 2)
    )

  def test_a_machine_without_chips(self):
    self.assertIsNone(self._detect(fake_machine.SERVER))
    self.assertIsNone(self._detect(TPU_ACCELERATOR_TYPE='v5litepod-8'))

  def test_device_files_alone_tell_no_kind(self):
    self.assertIsNone(self._detect({'/dev/vfio/0': ''}))


if __name__ == '__main__':
  absltest.main()
