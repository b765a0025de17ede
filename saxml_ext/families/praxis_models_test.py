"""Tests that the variables of praxis' GPT-J match the engine's table."""

from absl.testing import absltest
from absl.testing import parameterized
import jax
import numpy as np

from saxml_ext.engine import config as config_lib
from saxml_ext.engine.testing import random_model
from saxml_ext.families import praxis_models

# praxis can only be imported after the modules above have prepared it.
# isort: split
from praxis import base_layer

_CONFIG = config_lib.ModelConfig(
  num_layers=2,
  model_dim=32,
  num_heads=4,
  head_dim=8,
  hidden_dim=64,
  rotary_dim=4,
  vocab_size=96,
)


class PraxisModelsTest(parameterized.TestCase):
  @parameterized.parameters(False, True)
  def test_names_and_shapes_are_those_of_the_table(self, repeated):
    model = base_layer.instantiate(praxis_models.gptj(_CONFIG, repeated))
    ids = np.zeros((1, 4), np.int32)
    context = base_layer.JaxContext.HParams(do_eval=True)
    with base_layer.JaxContext.new_context(hparams=context):
      tree = jax.eval_shape(
        lambda: model.init(
          jax.random.PRNGKey(0),
          ids,
          np.zeros(ids.shape, np.float32),
          method=lambda model, ids, paddings: model.lm(ids, paddings),
        )
      )
    found = {
      '.'.join(part.key for part in path if hasattr(part, 'key')): leaf.shape
      for path, leaf in jax.tree_util.tree_leaves_with_path(
        {'params': tree['params']}
      )
    }
    expected = random_model.variables(_CONFIG)
    if repeated:
      expected = random_model.repeated(expected, _CONFIG)
    self.assertEqual(found, {n: v.shape for n, v in expected.items()})


if __name__ == '__main__':
  absltest.main()
