"""Tests of the description of machines."""

import dataclasses
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import jax
import psutil

from saxml_ext.common import errors
from saxml_ext.protobuf import admin_pb2
from saxml_ext.server import platforms


@dataclasses.dataclass(frozen=True)
class _Device:
  """A fake jax.Device with the attributes that are used."""

  platform: str
  device_kind: str
  coords: tuple[int, int, int] = (0, 0, 0)


class PlatformsTest(parameterized.TestCase):
  @parameterized.parameters(
    ('cpu', 'CHIP_TYPE_CPU'),
    ('CPU', 'CHIP_TYPE_CPU'),
    ('tpuv4i', 'CHIP_TYPE_TPU_V4I'),
    ('tpuv5e', 'CHIP_TYPE_TPU_V5E'),
    ('tpuv4', 'CHIP_TYPE_TPU_V4'),
    ('v4-8', 'CHIP_TYPE_TPU_V4'),
    ('v5e-4', 'CHIP_TYPE_TPU_V5E'),
    ('v5litepod-8', 'CHIP_TYPE_TPU_V5E'),
    ('tpu_v5e', 'CHIP_TYPE_TPU_V5E'),
    ('TPU-v6e', 'CHIP_TYPE_TPU_V6E'),
    ('t4', 'CHIP_TYPE_GPU_T4'),
    ('h100', 'CHIP_TYPE_GPU_H100'),
    ('h200', 'CHIP_TYPE_GPU_H200'),
  )
  def test_chip_names_are_mapped(self, name, expected):
    value = platforms.chip_type(name)
    self.assertEqual(admin_pb2.ModelServer.ChipType.Name(value), expected)

  def test_unknown_chip_joins_as_unknown(self):
    for name in ('abacus', 'v5p-8', 'tpuv', 'v4-', 'xv4'):
      with self.assertLogs('absl', level='WARNING') as logs:
        self.assertEqual(platforms.chip_type(name), 0)
      self.assertIn(f'--platform_chip={name} is not known', logs.output[0])

  @parameterized.parameters(
    ('1', 'CHIP_TOPOLOGY_1'),
    ('1x1', 'CHIP_TOPOLOGY_1X1'),
    ('2x2', 'CHIP_TOPOLOGY_2X2'),
    ('2X2x1', 'CHIP_TOPOLOGY_2X2X1'),
    ('4x4x8_twisted', 'CHIP_TOPOLOGY_4X4X8'),
    ('4x4x8_untwisted', 'CHIP_TOPOLOGY_4X4X8'),
  )
  def test_topology_names_are_mapped(self, name, expected):
    value = platforms.chip_topology(name)
    self.assertEqual(admin_pb2.ModelServer.ChipTopology.Name(value), expected)

  @parameterized.parameters('', '3x3', 'unknown', '2x2_bent')
  def test_unknown_topology_is_refused(self, name):
    with self.assertRaisesRegex(
      errors.InvalidArgument,
      f'platform_topology={name} is not known. Available: 1x1',
    ):
      platforms.chip_topology(name)

  @parameterized.parameters(
    ('cpu', 'cpu', 'CHIP_TYPE_CPU'),
    ('tpu', 'TPU v2', 'CHIP_TYPE_TPU_V2'),
    ('tpu', 'TPU v4', 'CHIP_TYPE_TPU_V4'),
    ('tpu', 'TPU v4 lite', 'CHIP_TYPE_TPU_V4I'),
    ('tpu', 'TPU v5 lite', 'CHIP_TYPE_TPU_V5E'),
    ('tpu', 'TPU v5', 'CHIP_TYPE_UNKNOWN'),
    ('tpu', 'TPU v6 lite', 'CHIP_TYPE_TPU_V6E'),
    ('gpu', 'NVIDIA A100-SXM4-80GB', 'CHIP_TYPE_GPU_A100'),
    ('gpu', 'Tesla V100-SXM2-16GB', 'CHIP_TYPE_GPU_V100'),
    ('gpu', 'NVIDIA H100 80GB HBM3', 'CHIP_TYPE_GPU_H100'),
    ('gpu', 'NVIDIA H200', 'CHIP_TYPE_GPU_H200'),
    ('gpu', 'NVIDIA B200', 'CHIP_TYPE_UNKNOWN'),
  )
  def test_jax_device_kinds_are_mapped(self, platform, kind, expected):
    value = platforms.chip_of(_Device(platform, kind))
    self.assertEqual(admin_pb2.ModelServer.ChipType.Name(value), expected)

  @parameterized.parameters(
    ('cpu', 'cpu', 4, '1'),
    ('gpu', 'NVIDIA L4', 8, '8'),
    ('gpu', 'NVIDIA L4', 3, 'UNKNOWN'),
    ('tpu', 'TPU v5 lite', 1, '1X1'),
    ('tpu', 'TPU v5 lite', 4, '2X2'),
    ('tpu', 'TPU v6 lite', 8, '2X4'),
    ('tpu', 'TPU v4', 4, '2X2X1'),
    ('tpu', 'TPU v2', 8, '2X4'),
  )
  def test_topology_is_derived_from_jax(self, platform, kind, count, expected):
    devices = [
      _Device(platform, kind, (i % 2, i // 2, 0)) for i in range(count)
    ]
    value = platforms.topology_of(devices)
    name = admin_pb2.ModelServer.ChipTopology.Name(value)
    self.assertEqual(name, f'CHIP_TOPOLOGY_{expected}')

  def test_platform_of_jax_is_the_default(self):
    device = jax.devices()[0]
    self.assertEqual(platforms.chip_type(None), platforms.chip_of(device))
    if device.platform == 'cpu':
      topology = platforms.chip_topology(None)
      self.assertEqual(topology, admin_pb2.ModelServer.CHIP_TOPOLOGY_1)

  def test_memory_is_that_of_the_machine(self):
    self.assertBetween(
      platforms.memory_bytes(), 2**24, psutil.virtual_memory().total
    )

  def test_group_memory_is_the_sum_of_its_machines(self):
    half = psutil.virtual_memory().total / 2
    with mock.patch.object(psutil, 'virtual_memory') as memory:
      memory.return_value.available = half
      for hosts, machines in ((('a',), 1), (('a', 'b'), 2), (('a', 'a'), 1)):
        self.assertEqual(platforms.memory_bytes(hosts), machines * half)


if __name__ == '__main__':
  absltest.main()
