"""What libtpu itself says of the topologies.

Fetches libtpu (684 MB) and takes half a minute: run it by hand where the locked
libtpu changes.

  ./bazelw test //saxml_ext/aot/tpu:libtpu_test
"""

import re

from absl.testing import absltest
from absl.testing import parameterized
import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.aot.tpu import topologies
from saxml_ext.engine import sharding

_LIMIT = re.compile(r'exceeds available HBM \(([0-9.]+)G\)')


class LibtpuTest(parameterized.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    topologies.prepare()

  @parameterized.parameters(*topologies.BY_NAME)
  def test_the_table_is_what_libtpu_says(self, name):
    topology = topologies.find(name)
    devices = topology.describe()
    self.assertLen(devices, topology.devices)
    self.assertEqual(devices[0].device_kind, topology.chip.kind)
    self.assertLen({d.process_index for d in devices}, topology.hosts)
    self.assertAlmostEqual(
      topology.chip.hbm / 2**30, _limit(devices[0]), delta=0.01
    )

  def test_the_chips_of_a_host_split_the_layers(self):
    devices = topologies.find('v5e_4x4').describe()
    mesh = sharding.make_mesh((1, 4, 4), devices)
    for host in mesh.devices[0]:
      self.assertLen({chip.process_index for chip in host}, 1)
      for chip, other in zip(host, np.roll(host, 1)):
        # Each is linked with the next, the last with the first.
        steps = np.abs(np.subtract(chip.coords, other.coords))
        self.assertEqual(steps.sum(), 1)


def _limit(device: jax.Device) -> float:
  """GiB of a device that XLA lets a program use; a program fails for it."""
  mesh = jax.sharding.Mesh(np.array([device]), 'x')
  sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
  # 200 GiB in and out: no chip has as much.
  x = jax.ShapeDtypeStruct((200, 2**30), jnp.int8, sharding=sharding)
  try:
    jax.jit(lambda x: x + 1).lower(x).compile()
  except jax.errors.JaxRuntimeError as e:
    match = _LIMIT.search(str(e))
    if match is None:
      raise
    return float(match[1])
  raise AssertionError('a program of 400 GiB was compiled')


if __name__ == '__main__':
  absltest.main()
