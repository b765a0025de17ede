from absl.testing import absltest
from absl.testing import parameterized
import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine.search import search


class TopKTest(parameterized.TestCase):
  @parameterized.parameters((100, 8), (4096, 8), (50401, 8), (5000, 1))
  def test_equals_one_stage(self, width, k):
    rng = np.random.default_rng(0)
    # Few distinct values create many ties, within blocks and across blocks.
    x = jnp.asarray(rng.integers(0, 50, (7, width)), jnp.float32)
    x = x.at[0].set(-jnp.inf).at[1, ::3].set(-jnp.inf)
    values, indices = jax.jit(lambda x: search.top_k(x, k))(x)
    expected_values, expected_indices = jax.lax.top_k(x, k)
    np.testing.assert_array_equal(values, expected_values)
    np.testing.assert_array_equal(indices, expected_indices)

  def test_ties_go_to_the_lower_index_beside_a_larger_element(self):
    """Checks a tie in a block that also has the largest element."""
    x = np.zeros((2, 5000), np.float32)
    x[0, [200, 700, 701, 3000]] = 3, 9, 3, 3
    x[1, [4000, 4001, 64, 4999]] = 9, 3, 3, 8
    values, indices = search.top_k(jnp.asarray(x), 4)
    np.testing.assert_array_equal(values, [[9, 3, 3, 3], [9, 8, 3, 3]])
    np.testing.assert_array_equal(
      indices, [[700, 200, 701, 3000], [4000, 4999, 64, 4001]]
    )


if __name__ == '__main__':
  absltest.main()
