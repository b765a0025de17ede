"""Compares praxis' models with the engine's: variables and Llama's logits."""

import dataclasses

from absl.testing import absltest
from absl.testing import parameterized
from flax import traverse_util
import jax
import numpy as np

from saxml_ext.engine import architecture
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import model as model_lib
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.testing import random_model
from saxml_ext.families import llama
from saxml_ext.families import praxis_models

# praxis can only be imported after the modules above have prepared it.
# isort: split
from praxis import base_layer

_GPTJ = config_lib.ModelConfig(
  num_layers=2,
  model_dim=32,
  num_heads=4,
  head_dim=8,
  hidden_dim=64,
  rotary_dim=4,
  vocab_size=96,
)
_LLAMA = dataclasses.replace(
  _GPTJ, rotary_dim=8, architecture=llama.FAMILY.architecture
)
_LLAMA3 = dataclasses.replace(_LLAMA, num_kv_heads=2, rotary_base=500000.0)
_CASES = tuple(
  (make, config, repeated)
  for make, config in (
    (praxis_models.gptj, _GPTJ),
    (praxis_models.llama, _LLAMA),
    (praxis_models.llama, _LLAMA3),
  )
  for repeated in (False, True)
)


class PraxisModelsTest(parameterized.TestCase):
  @parameterized.parameters(*_CASES)
  def test_names_and_shapes_are_those_of_the_table(
    self, make, config, repeated
  ):
    model = base_layer.instantiate(make(config, repeated))
    ids = np.zeros((1, 4), np.int32)
    context = base_layer.JaxContext.HParams(do_eval=True)
    with base_layer.JaxContext.new_context(hparams=context):
      tree = jax.eval_shape(
        lambda: model.init(
          jax.random.PRNGKey(0),
          ids,
          np.zeros(ids.shape, np.float32),
          method=_logits,
        )
      )
    actual = {
      '.'.join(part.key for part in path if hasattr(part, 'key')): leaf.shape
      for path, leaf in jax.tree_util.tree_leaves_with_path(
        {'params': tree['params']}
      )
    }
    expected = random_model.variables(config)
    if repeated:
      expected = random_model.repeated(expected, config)
    self.assertEqual(actual, {n: v.shape for n, v in expected.items()})

  @parameterized.parameters(_LLAMA, _LLAMA3)
  def test_logits_of_llama_equal_the_engines(self, config):
    variables = random_model.variables(config, seed=3, scale=8)
    ids = np.random.default_rng(1).integers(0, 96, (2, 40)).astype(np.int32)
    model = base_layer.instantiate(praxis_models.llama(config))
    context = base_layer.JaxContext.HParams(do_eval=True)
    with base_layer.JaxContext.new_context(hparams=context):
      expected = model.apply(
        traverse_util.unflatten_dict(variables, sep='.'),
        ids,
        np.zeros(ids.shape, np.float32),
        method=_logits,
      )
    weights = weights_lib.from_pax(variables, config, 'float32')
    x, _ = model_lib.prefill(weights, config, ids, 'float32')
    actual = model_lib.logits(weights, config, x)
    self.assertGreater(np.abs(expected).max(), 10)
    np.testing.assert_allclose(actual, expected, atol=1e-4)

  def test_refuses_scaled_rotary_positions(self):
    scaled = dataclasses.replace(
      _LLAMA3, rotary_scaling=architecture.RotaryScaling(8.0, 1.0, 4.0, 8192)
    )
    with self.assertRaisesRegex(ValueError, 'RotaryScaling.*before 3.1'):
      praxis_models.llama(scaled)


def _logits(model, ids, paddings):
  return model.lm(ids, paddings).logits


if __name__ == '__main__':
  absltest.main()
