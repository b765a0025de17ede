"""Tests of balancing channels."""

from absl.testing import absltest
import numpy as np

from converters.quantize import int8_matrix
from converters.quantize import smoothing
from saxml_ext.engine import architecture
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import model
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.testing import random_model


def _stats(inputs: np.ndarray) -> int8_matrix.InputStats:
  """Returns statistics of inputs [tokens, channels], computed by definition."""
  return int8_matrix.InputStats(
    np.abs(inputs).max(0),
    np.square(inputs).mean(0),
    inputs.T @ inputs / len(inputs),
  )


class SmoothingTest(absltest.TestCase):
  def test_statistics_match_the_divided_inputs(self):
    rng = np.random.default_rng(0)
    exponents = {'norm': (3, 0, -2, 5), 'mixed': (-1, 4)}
    inputs = {
      name: rng.normal(size=(50, size)).astype(np.float32)
      for name, size in (('norm', 4), ('mixed', 2), ('hidden', 3))
    }
    divided = dict(inputs)
    for name in ('norm', 'mixed'):
      divided[name] = inputs[name] / np.exp2(
        np.asarray(exponents[name], np.float32)
      )
    scaled = smoothing.apply_to_stats(
      {name: _stats(values) for name, values in inputs.items()}, exponents
    )
    for name, values in divided.items():
      expected = _stats(values)
      for field in ('peak', 'mean_square', 'hessian'):
        np.testing.assert_allclose(
          getattr(scaled[name], field), getattr(expected, field), rtol=1e-5
        )

  def test_only_strength_0_needs_no_statistics(self):
    prefix = 'params.lm.transformer.x_layers_0.'
    variables = {
      f'{prefix}self_attention.combined_qkv.w': np.full((3, 4, 2, 1), 8.0),
      f'{prefix}self_attention.post.w': np.full((4, 2, 1), 0.25),
      f'{prefix}ff_layer.ffn_layer1.linear.w': np.ones((4, 3)),
    }
    exponents = smoothing.choose(variables, 0.0, None)
    self.assertEqual(exponents, {'norm': (-3,) * 4, 'mixed': (2, 2)})
    with self.assertRaisesRegex(ValueError, 'strength 0.5 needs statistics'):
      smoothing.choose(variables, 0.5, None)

  def test_heads_that_share_values_are_divided_alike(self):
    config = config_lib.ModelConfig(
      num_layers=1,
      model_dim=24,
      num_heads=6,
      num_kv_heads=2,
      head_dim=4,
      hidden_dim=40,
      rotary_dim=4,
      vocab_size=33,
      architecture=architecture.Architecture(biases=architecture.BIASES),
    )
    variables = random_model.variables(config)
    post = 'params.lm.transformer.x_layers_0.self_attention.post.w'
    variables[post][:, 4] *= np.float32([1, 8, 1, 1])
    layer = {n: v for n, v in variables.items() if '.x_layers_0.' in n}
    exponents = smoothing.choose(layer, 0.0, None)
    mixed = np.reshape(exponents['mixed'], (2, 3, 4))
    np.testing.assert_array_equal(mixed, mixed[:, :1].repeat(3, 1))
    self.assertGreater(np.ptp(mixed), 0)
    smoothed = {**variables, **smoothing.apply(layer, exponents)}
    tokens = np.arange(12)[None]

    def logits(variables):
      weights = weights_lib.from_pax(variables, config)
      x, _ = model.prefill(weights, config, tokens, 'float32')
      return model.logits(weights, config, x)

    np.testing.assert_array_equal(logits(smoothed), logits(variables))

  def test_no_hessian_stays_none(self):
    stats = int8_matrix.InputStats(np.ones(1), np.ones(1), None)
    scaled = smoothing.apply_to_stats(
      {'norm': stats, 'mixed': stats}, {'norm': (1,), 'mixed': (2,)}
    )
    self.assertIsNone(scaled['norm'].hessian)
    self.assertEqual(scaled['mixed'].mean_square, [1 / 16])


if __name__ == '__main__':
  absltest.main()
