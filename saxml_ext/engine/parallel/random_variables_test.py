"""Tests of random variables."""

from absl.testing import absltest
from absl.testing import parameterized
import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import model
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.parallel import random_variables
from saxml_ext.engine.testing import random_model

_LM_CLOUD = random_model.lm_cloud(
  num_layers=2,
  model_dim=64,
  num_heads=4,
  head_dim=16,
  hidden_dim=256,
  vocab_size=512,
)
_GPTJ = config_lib.ModelConfig(
  num_layers=2,
  model_dim=64,
  num_heads=4,
  head_dim=16,
  hidden_dim=256,
  rotary_dim=8,
  vocab_size=512,
)
_LAYER = 'params.lm.transformer.x_layers_1'
_QKV = f'{_LAYER}.self_attention.combined_qkv.w'
_UP = f'{_LAYER}.ff_layer.ffn_layer1.linear.w'
_EMBEDDING = 'params.lm.softmax.logits_ffn.linear.w'


class RandomVariablesTest(parameterized.TestCase):
  @parameterized.parameters(None, 'int8')
  def test_parts_are_those_of_the_whole(self, quantization):
    made = random_variables.RandomVariables(_LM_CLOUD, 5, quantization)
    for name in (_QKV, _EMBEDDING):
      whole = made[name]
      self.assertEqual((whole.shape, whole.dtype), _form(made.specs[name]))
      for part in np.s_[1], np.s_[:, 3:40], np.s_[-1:, 2], np.s_[3:3]:
        if len(whole) > 3 or part != np.s_[3:3]:
          np.testing.assert_array_equal(made.read_part(name, part), whole[part])
    alone = random_variables.RandomVariables(_LM_CLOUD, 5, quantization)
    np.testing.assert_array_equal(
      alone.read_part(_QKV, np.s_[2, 10:20, 1:3]), made[_QKV][2, 10:20, 1:3]
    )
    with self.assertRaisesRegex(ValueError, 'has step 2, but must have step 1'):
      made.read_part(_QKV, np.s_[::2])
    with self.assertRaises(KeyError):
      made.read_part('params.lm.other', 0)

  def test_numbers_differ_by_seed_name_and_position(self):
    made = random_variables.RandomVariables(_LM_CLOUD, 0)
    arrays = [
      made[_UP],
      made[_UP.replace('x_layers_1', 'x_layers_0')],
      random_variables.RandomVariables(_LM_CLOUD, 1)[_UP],
      made[_UP][::-1],
      made[_UP][:, ::-1],
      np.roll(made[_UP], 1),
    ]
    for i, one in enumerate(arrays):
      for other in arrays[:i]:
        correlation = np.corrcoef(one.ravel(), other.ravel())[0, 1]
        self.assertLess(abs(correlation), 0.04)  # Five standard errors.

  def test_spread_is_that_of_praxis(self):
    made = random_variables.RandomVariables(_LM_CLOUD)
    limit = np.sqrt(6 / (64 + 256))
    self.assertAlmostEqual(made[_UP].max(), limit, delta=1e-3 * limit)
    self.assertAlmostEqual(made[_UP].min(), -limit, delta=1e-3 * limit)
    self.assertAlmostEqual(made[_UP].std(), limit / np.sqrt(3), delta=0.002)
    self.assertAlmostEqual(
      made[_QKV].max(), np.sqrt(6 / (3 * 64 * 20)), delta=1e-4
    )
    self.assertAlmostEqual(made[_EMBEDDING].std(), 1 / 8, delta=0.002)
    self.assertAlmostEqual(np.abs(made[_EMBEDDING]).max(), 4 / 8, delta=0.1)
    for config, scale in (_LM_CLOUD, 0), (_GPTJ, 1):
      made = random_variables.RandomVariables(config)
      self.assertTrue((made[f'{_LAYER}.layer_norm.scale'] == scale).all())

  def test_int8_is_float32_rounded(self):
    exact = random_variables.RandomVariables(_LM_CLOUD, 3)
    coded = random_variables.RandomVariables(_LM_CLOUD, 3, 'int8_weights')
    self.assertEqual(coded[_EMBEDDING].dtype, np.float32)
    scale = coded[f'{_QKV}_quantized_scale']
    self.assertEqual(scale.shape, (3, 4, 16))
    self.assertEqual(coded[_QKV].dtype, np.int8)
    self.assertEqual((coded[_QKV].min(), coded[_QKV].max()), (-127, 127))
    difference = coded[_QKV] * scale[:, None] - exact[_QKV]
    self.assertLess(np.abs(difference).max(), 0.501 * scale.max())

  @parameterized.product(
    config=(_LM_CLOUD, _GPTJ), quantization=(None, 'int8', 'int8_weights')
  )
  def test_a_model_of_them_gives_sane_logits(self, config, quantization):
    made = random_variables.RandomVariables(config, 1, quantization)
    weights = weights_lib.from_pax(
      made, config, 'float32', quantization, quantize_head=False
    )
    tokens = np.random.default_rng(0).integers(0, 512, (2, 32))
    x, _ = jax.jit(
      lambda w: model.prefill(w, config, jnp.asarray(tokens), 'float32')
    )(weights)
    logits = model.logits(weights, config, x)
    self.assertBetween(float(logits.std()), 0.3, 3)
    self.assertGreater(len(set(np.asarray(logits.argmax(-1)).ravel())), 20)

  def test_unknown_quantization_is_refused(self):
    with self.assertRaisesRegex(ValueError, "'int2', not one of"):
      random_variables.RandomVariables(_LM_CLOUD, 0, 'int2')


def _form(spec: jax.ShapeDtypeStruct) -> tuple[tuple[int, ...], np.dtype]:
  return spec.shape, spec.dtype


if __name__ == '__main__':
  absltest.main()
