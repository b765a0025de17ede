"""Tests of evening out channels."""

from absl.testing import absltest
import numpy as np

from converters.quantize import input_stats
from converters.quantize.methods import smoothing


def _stats(inputs: np.ndarray) -> input_stats.InputStats:
  """Statistics of inputs [tokens, channels], straight from their meaning."""
  return input_stats.InputStats(
    np.abs(inputs).max(0),
    np.square(inputs).mean(0),
    inputs.T @ inputs / len(inputs),
  )


class SmoothingTest(absltest.TestCase):
  def test_statistics_are_those_of_the_divided_inputs(self):
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
    found = smoothing.apply_to_stats(
      {name: _stats(values) for name, values in inputs.items()}, exponents
    )
    for name, values in divided.items():
      expected = _stats(values)
      for field in ('peak', 'mean_square', 'hessian'):
        np.testing.assert_allclose(
          getattr(found[name], field), getattr(expected, field), rtol=1e-5
        )

  def test_only_strength_0_does_without_statistics(self):
    prefix = 'params.lm.transformer.x_layers_0.'
    variables = {
      f'{prefix}self_attention.combined_qkv.w': np.full((3, 4, 2, 1), 8.0),
      f'{prefix}self_attention.post.w': np.full((4, 2, 1), 0.25),
      f'{prefix}ff_layer.ffn_layer1.linear.w': np.ones((4, 3)),
    }
    found = smoothing.choose(variables, 0.0, None)
    self.assertEqual(found, {'norm': (-3,) * 4, 'mixed': (2, 2)})
    with self.assertRaisesRegex(ValueError, 'strength 0.5 needs statistics'):
      smoothing.choose(variables, 0.5, None)

  def test_no_hessian_stays_none(self):
    stats = input_stats.InputStats(np.ones(1), np.ones(1), None)
    found = smoothing.apply_to_stats(
      {'norm': stats, 'mixed': stats}, {'norm': (1,), 'mixed': (2,)}
    )
    self.assertIsNone(found['norm'].hessian)
    self.assertEqual(found['mixed'].mean_square, [1 / 16])


if __name__ == '__main__':
  absltest.main()
