import dataclasses

from absl.testing import absltest
import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine import components
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.testing import random_model

_MODEL = config_lib.ModelConfig(
  num_layers=1,
  model_dim=64,
  num_heads=2,
  head_dim=32,
  hidden_dim=64,
  rotary_dim=8,
  vocab_size=4096,
)


class EmbedTest(absltest.TestCase):
  def test_a_loop_of_steps_holds_no_second_table(self):
    weights = weights_lib.from_pax(random_model.variables(_MODEL), _MODEL)
    table = weights.embedding.astype(jnp.bfloat16)
    weights = dataclasses.replace(weights, embedding=table)
    tokens = np.arange(5, dtype=np.int32)[:, None]

    def embed(weights, step):
      return components.embed(weights, _MODEL, tokens + step, tokens[:, 0])

    def steps(weights):
      zero = jnp.zeros((5, 1, _MODEL.model_dim))
      return jax.lax.fori_loop(0, 4, lambda i, x: x + embed(weights, i), zero)

    compiled = jax.jit(steps).lower(weights).compile()
    held = compiled.memory_analysis().temp_size_in_bytes
    self.assertLess(held, table.nbytes / 4)
    rows = np.asarray(table, np.float32)
    np.testing.assert_array_equal(
      compiled(weights)[:, 0], sum(rows[i : i + 5] for i in range(4))
    )


if __name__ == '__main__':
  absltest.main()
