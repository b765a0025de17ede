"""Tests of models with random weights."""

from absl.testing import absltest
from absl.testing import parameterized
import jax
import numpy as np

from saxml_ext.common import errors
from saxml_ext.engine import sharding
from saxml_ext.engine.parallel import split_weights
from saxml_ext.params import lm_cloud
from saxml_ext.params import published
from saxml_ext.params import settings as settings_lib
from saxml_ext.server.loading import random_model

jax.config.update('jax_num_cpu_devices', 4)

_SMALL = {
  'NUM_LAYERS': 2,
  'MODEL_DIMS': 64,
  'NUM_HEADS': 4,
  'DIMS_PER_HEAD': 16,
  'HIDDEN_DIMS': 128,
  'VOCAB_SIZE': 300,
}
_PATH = 'test.Params'


def _settings(base=lm_cloud.LmCloudSpmd175BTest, **attributes):
  params = type('Params', (base,), {**_SMALL, **attributes})
  return settings_lib.Settings.from_params(params)


class RandomModelTest(parameterized.TestCase):
  @parameterized.parameters(
    ('None', True), ('', True), ('none', False), ('/ckpt', False)
  )
  def test_random_weight_paths_are_recognized(self, path, meant):
    self.assertEqual(random_model.is_meant(path), meant)

  def test_sizes_are_the_published_ones(self):
    model = random_model.RandomModel(_PATH)
    config = model.config(
      settings_lib.Settings.from_params(lm_cloud.LmCloudSpmd2BTest)
    )
    self.assertEqual(config.num_heads, 24)
    self.assertEqual((config.num_layers, config.model_dim), (18, 3072))
    self.assertEqual((config.hidden_dim, config.vocab_size), (12288, 32000))
    self.assertFalse(config.ln_direct_scale)
    self.assertEqual(config.ln_epsilon, 1e-6)
    self.assertTrue(config.architecture.tied_head)
    self.assertEqual(config.architecture.attention_cap, 50)

  @parameterized.parameters(
    (dict(NUM_HEADS=3), 'NUM_HEADS=3 times DIMS_PER_HEAD=16 is not MODEL_DIMS'),
    (dict(NUM_HEADS=None, MODEL_DIMS=65), 'is not MODEL_DIMS=65'),
    (dict(VOCAB_SIZE=None), 'take VOCAB_SIZE from the checkpoint'),
    (dict(ROTARY_DIM=8), 'rotary_dim is 8'),
  )
  def test_inconsistent_sizes_are_refused(self, attributes, message):
    with self.assertRaisesRegex(errors.InvalidArgument, message):
      random_model.RandomModel(_PATH).config(_settings(**attributes))

  @parameterized.parameters('none', 'int8_weights')
  def test_parts_equal_slices_of_the_whole(self, quantization):
    settings = _settings(QUANTIZATION=quantization, FPROP_DTYPE='bfloat16')
    model = random_model.RandomModel(_PATH)
    config = model.config(settings)
    whole = model.weights(config, settings, None)
    form = split_weights.Form(
      settings.dtype, settings.quantization, settings.quantize_head
    )
    mesh = sharding.make_mesh((1, 1, 4))
    parts = model.split(config, form, mesh)
    padded = sharding.pad(mesh, whole)
    jax.tree.map(np.testing.assert_array_equal, parts, padded)
    self.assertGreater(np.asarray(whole.layers[1].up_bias).size, 0)
    self.assertGreater(float(np.std(np.float32(whole.embedding))), 0.05)

  def test_gptj_may_have_random_weights(self):
    settings = _settings(published.GPTJ, ROTARY_DIM=8, QUANTIZATION='int8')
    model = random_model.RandomModel(_PATH)
    weights = model.weights(model.config(settings), settings, None)
    self.assertLen(weights.layers, 2)
    self.assertEqual(weights.head.shape, (64, 300))

  def test_oversized_weights_are_refused(self):
    settings = _settings(HIDDEN_DIMS=10**13)
    model = random_model.RandomModel(_PATH)
    config = model.config(settings)
    form = split_weights.Form(settings.dtype, settings.quantization, False)
    mesh = sharding.make_mesh((1, 1, 4))
    with self.assertRaisesRegex(errors.InvalidArgument, 'GiB free. Use more'):
      model.split(config, form, mesh)
    with self.assertRaisesRegex(errors.InvalidArgument, 'GiB free. Use more'):
      model.weights(config, settings, None)

  def test_unquantized_variables_are_reported(self):
    settings = _settings(QUANTIZATION='int8', QUANTIZE_SOFTMAX=True)
    model = random_model.RandomModel(_PATH)
    with self.assertRaisesRegex(errors.InvalidArgument, f'^{_PATH}: the head'):
      model.weights(model.config(settings), settings, None)


if __name__ == '__main__':
  absltest.main()
