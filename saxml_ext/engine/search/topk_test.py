from absl.testing import absltest
from absl.testing import parameterized
import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine.search import topk


class TopKTest(parameterized.TestCase):
  @parameterized.parameters((100, 8), (4096, 8), (50401, 8), (5000, 1))
  def test_equals_one_stage(self, width, k):
    rng = np.random.default_rng(0)
    # Few distinct values: many ties, within blocks and across them.
    x = jnp.asarray(rng.integers(0, 50, (7, width)), jnp.float32)
    x = x.at[0].set(-jnp.inf).at[1, ::3].set(-jnp.inf)
    values, indices = jax.jit(lambda x: topk.top_k(x, k))(x)
    expected_values, expected_indices = jax.lax.top_k(x, k)
    np.testing.assert_array_equal(values, expected_values)
    np.testing.assert_array_equal(indices, expected_indices)


if __name__ == '__main__':
  absltest.main()
