"""Compares the table of variables with all code that uses it."""

import dataclasses

from absl.testing import absltest
from absl.testing import parameterized
import jax

from saxml_ext.engine import abstract_weights
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import variables
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.testing import random_model

_CONFIG = config_lib.ModelConfig(
  num_layers=2,
  model_dim=24,
  num_heads=3,
  head_dim=8,
  hidden_dim=40,
  rotary_dim=4,
  vocab_size=33,
)


class VariablesTest(parameterized.TestCase):
  def test_shapes_follow_the_axes(self):
    shapes = {
      row.path(layer): row.shape(_CONFIG)
      for row, layer in variables.GPTJ.entries(_CONFIG)
    }
    self.assertLen(shapes, 5 + 2 * 8)
    layer = 'params.lm.transformer.x_layers_1'
    qkv = shapes[f'{layer}.self_attention.combined_qkv.w']
    self.assertEqual(qkv, (3, 24, 3, 8))
    self.assertEqual(shapes[f'{layer}.self_attention.post.w'], (24, 3, 8))
    down = shapes[f'{layer}.ff_layer.ffn_layer2.linear.w']
    self.assertEqual(down, (40, 24))

  def test_layers_stand_between_embedding_and_head(self):
    paths = [row.path(i) for row, i in variables.GPTJ.entries(_CONFIG)]
    layers = [variables.layer_of(path) for path in paths]
    self.assertEqual(layers, [None] + 8 * [0] + 8 * [1] + 4 * [None])

  @parameterized.parameters('', 'params.lm.', 'mdl_vars.params.lm.')
  def test_names_are_found_with_any_prefix(self, prefix):
    for row in variables.GPTJ:
      name = prefix + row.below_prefix(27)
      self.assertIs(variables.GPTJ.named(name), row)
      self.assertIsNone(variables.GPTJ.named(name + '2'))
    self.assertIsNone(variables.GPTJ.named('params.lm.other_final_ln.scale'))

  def test_sizes_are_read_off_the_shapes(self):
    actual = random_model.variables(_CONFIG)
    self.assertEqual(config_lib.ModelConfig.from_pax(actual, 4), _CONFIG)
    wrong = {
      name.replace('x_layers_1', 'x_layers_2'): v for name, v in actual.items()
    }
    with self.assertRaisesRegex(ValueError, r'layers are \[0, 2\], not 0, 1'):
      config_lib.ModelConfig.from_pax(wrong, 4)

  @parameterized.parameters(
    ('float32', None),
    ('bfloat16', None),
    ('float32', 'int8'),
    ('bfloat16', 'int8_weights'),
    ('float32', 'int8', False),
    ('float32', 'int8_fine', False),
    ('bfloat16', 'fp8'),
    ('bfloat16', 'int8_weights', False),
  )
  def test_abstract_weights_are_the_shapes_of_real_ones(self, *kind):
    real = weights_lib.from_pax(random_model.variables(_CONFIG), _CONFIG, *kind)
    actual = abstract_weights.shapes(_CONFIG, *kind)
    self.assertEqual(actual, jax.eval_shape(lambda: real))
    actual = abstract_weights.shapes(_CONFIG, *kind, stacked=True)
    self.assertEqual(actual, jax.eval_shape(lambda: weights_lib.stack(real)))

  def test_abstract_weights_in_int4_are_the_shapes_of_real_ones(self):
    config = dataclasses.replace(
      _CONFIG, model_dim=32, num_heads=4, hidden_dim=64
    )
    kind = 'bfloat16', 'int4'
    real = weights_lib.from_pax(random_model.variables(config), config, *kind)
    actual = abstract_weights.shapes(config, *kind)
    self.assertEqual(actual, jax.eval_shape(lambda: real))
    self.assertEqual(real.layers[0].down.values.shape, (2, 640))
    # The head is in int8.
    self.assertEqual(real.head.values.shape, (33, 32))


if __name__ == '__main__':
  absltest.main()
