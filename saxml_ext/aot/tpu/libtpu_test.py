"""Tests that the table of topologies agrees with libtpu.

The test downloads libtpu (684 MB) and takes half a minute. Run it by hand when
the locked libtpu changes.

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
  def test_table_agrees_with_libtpu(self, name):
    topology = topologies.find(name)
    devices = topology.describe()
    self.assertLen(devices, topology.devices)
    self.assertEqual(devices[0].device_kind, topology.chip.kind)
    self.assertLen({d.process_index for d in devices}, topology.hosts)
    self.assertAlmostEqual(
      topology.chip.hbm / 2**30, _limit(devices[0]), delta=0.01
    )

  def test_chips_of_a_host_split_the_layers(self):
    devices = topologies.find('v5e_4x4').describe()
    mesh = sharding.make_mesh((1, 4, 4), devices)
    for host in mesh.devices[0]:
      self.assertLen({chip.process_index for chip in host}, 1)
      for chip, other in zip(host, np.roll(host, 1)):
        # Each chip is linked to the next one, and the last to the first.
        steps = np.abs(np.subtract(chip.coords, other.coords))
        self.assertEqual(steps.sum(), 1)


def _limit(device: jax.Device) -> float:
  """Returns the GiB of a device that XLA lets a program use.

  The limit is in the error message of a program that is too large.
  """
  mesh = jax.sharding.Mesh(np.array([device]), 'x')
  sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
  # The program needs 200 GiB for arguments and results, more than any chip has.
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
