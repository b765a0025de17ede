"""Tests that variables are read in each of praxis' forms."""

from collections.abc import Mapping

from absl.testing import absltest
from absl.testing import parameterized
import jax
import numpy as np

from saxml_ext.engine import stored_variables
from saxml_ext.engine import variables as variables_lib
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.testing import random_model

_CONFIG = random_model.lm_cloud(
  num_layers=3,
  model_dim=24,
  num_heads=3,
  head_dim=8,
  hidden_dim=40,
  vocab_size=33,
)
_QKV = variables_lib.LM_CLOUD.by_field['layers.qkv']
_SHARED = 'params.lm.transformer.repeat.sub.x_layers_0.'


class _Lazy(Mapping[str, np.ndarray]):
  """Variables that layers share, which can be read only in parts.

  It records the size of the largest part.
  """

  def __init__(self, variables: Mapping[str, np.ndarray]):
    self._variables = variables
    self.most_read = 0

  def __getitem__(self, name):
    assert not name.startswith(_SHARED), f'all layers of {name} were read'
    return self._variables[name]

  def __iter__(self):
    return iter(self._variables)

  def __len__(self):
    return len(self._variables)

  def read_part(self, name, slices):
    part = self._variables[name][slices]
    self.most_read = max(self.most_read, part.size)
    return part


class StoredVariablesTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.own = random_model.variables(_CONFIG)
    self.shared = random_model.repeated(self.own, _CONFIG)

  @parameterized.parameters(None, 'int8')
  def test_all_forms_are_the_same_model(self, quantization):
    expected = self._weights(self.own, quantization)
    lazy = _Lazy(self.shared)
    apart = {}
    for name, value in self.own.items():
      if 'combined_qkv' not in name:
        apart[name] = value
        continue
      for part, array in zip(('query', 'key', 'value'), value):
        apart[name.replace('combined_qkv', part)] = array
    for form in self.shared, lazy, apart:
      got = self._weights(form, quantization)
      jax.tree.map(np.testing.assert_array_equal, got, expected)
    self.assertEqual(lazy.most_read, 3 * 24 * 24)  # One layer's qkv.

  def test_scales_of_parts_are_put_together(self):
    rng = np.random.default_rng(0)
    codes = rng.integers(-127, 128, (3, 24, 3, 8), np.int8)
    scale = rng.random((3, 3, 8), np.float32)
    stored = {}
    for i, part in enumerate(('query', 'key', 'value')):
      name = f'lm.transformer.x_layers_1.self_attention.{part}.w'
      stored |= {name: codes[i], f'{name}_quantized_scale': scale[i]}
    reader = stored_variables.StoredVariables(stored, _CONFIG)
    _, values = reader.arrays(_QKV, 1)
    np.testing.assert_array_equal(values, codes)
    _, scales = reader.arrays(_QKV, 1, variables_lib.SCALE_SUFFIX)
    np.testing.assert_array_equal(scales, scale[:, None])

  def test_wrong_shapes_are_refused(self):
    name = f'{_SHARED}self_attention.combined_qkv.w'
    self.shared[name] = self.shared[name][:2]
    with self.assertRaisesRegex(ValueError, r'combined_qkv.w.*\(2,\).*\(3,\)'):
      self._weights(self.shared)
    self.shared[name] = np.zeros((3, 3, 24, 3, 9), np.float32)
    for form in self.shared, _Lazy(self.shared):
      with self.assertRaisesRegex(ValueError, r'has shape \(3, 24, 3, 9\)'):
        self._weights(form)
    del self.shared[name]
    with self.assertRaisesRegex(
      ValueError, '0 variables end in .*combined_qkv'
    ):
      self._weights(self.shared)

  def _weights(self, variables, quantization=None):
    return weights_lib.from_pax(
      variables, _CONFIG, 'float32', quantization, quantize_head=False
    )


if __name__ == '__main__':
  absltest.main()
