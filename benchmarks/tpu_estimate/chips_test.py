"""Tests that the clock rates of chips agree with libtpu.

The test downloads libtpu (684 MB). Run it by hand when the locked libtpu
changes.

  ./bazelw test //benchmarks/tpu_estimate:chips_test
"""

import re

from absl.testing import absltest
from absl.testing import parameterized
import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.tpu_estimate import chips
from saxml_ext.aot.tpu import topologies

_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')


class ChipsTest(parameterized.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    topologies.prepare()

  @parameterized.parameters('v5e_1x1', 'v6e_1x1')
  def test_cycles_of_a_product_are_at_least_the_peaks(self, name):
    topology = topologies.find(name)
    mesh = jax.sharding.Mesh(np.array(topology.describe()), 'x')
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    x = jax.ShapeDtypeStruct((8192, 8192), jnp.bfloat16, sharding=sharding)
    text = jax.jit(jnp.dot).lower(x, x).compile().as_text()
    cycles = sum(map(int, _CYCLES.findall(text)))
    peaks = chips.BY_CHIP[topology.chip]
    seconds = cycles / peaks.clock
    # With libtpu 0.0.42, these are 1.14 for v5e and 1.42 for v6e.
    peak = 2 * 8192**3 / peaks.bf16
    self.assertBetween(seconds / peak, 1, 1.5)


if __name__ == '__main__':
  absltest.main()
