"""Tests the table of topologies without libtpu."""

import math

from absl.testing import absltest

from saxml_ext.aot.tpu import topologies


class TopologiesTest(absltest.TestCase):
  def test_names_contain_generation_and_shape(self):
    topology = topologies.find('v5e_2x2')
    self.assertEqual(topology.libtpu, 'v5e:2x2')
    self.assertEqual(
      (topology.chips, topology.devices, topology.hosts), (4, 4, 1)
    )
    self.assertEqual(topologies.find('v5p_2x2').libtpu, 'v5p:2x2x1')

  def test_v7x_chip_has_two_devices(self):
    topology = topologies.find('v7x_2x2')
    self.assertEqual(topology.libtpu, 'tpu7x:2x2x1')
    self.assertEqual((topology.chips, topology.devices), (4, 8))

  def test_large_slices_have_several_hosts(self):
    self.assertEqual(topologies.find('v5e_4x8').hosts, 8)
    self.assertEqual(topologies.find('v5e_4x4').hosts, 4)

  def test_meshes_use_every_device(self):
    for topology in topologies.BY_NAME.values():
      with self.subTest(topology.name):
        self.assertEqual(math.prod(topology.mesh), topology.devices)

  def test_unknown_name_is_refused_with_a_list(self):
    with self.assertRaisesRegex(ValueError, r"'v5e_3x3'. Available: .*v5e_2x2"):
      topologies.find('v5e_3x3')


if __name__ == '__main__':
  absltest.main()
