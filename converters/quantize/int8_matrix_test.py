"""Tests of the table of matrices that become int8."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from converters.quantize import int8_matrix
from saxml_ext.families import hf_config
from saxml_ext.families import layout

_SHAPE = hf_config.HFConfig(2, 12, 3, 20, 11)
_HEAD = 'params.lm.softmax.logits_ffn.linear.w'


class QuantizedMatricesTest(parameterized.TestCase):
  def test_matrices_of_a_model(self):
    names = [
      v.name
      for v in layout.variables(_SHAPE)
      if int8_matrix.summed_dims(v.name, softmax=False) is not None
    ]
    self.assertLen(names, 8)
    self.assertNotIn(_HEAD, names)
    self.assertEqual(int8_matrix.summed_dims(_HEAD), (0,))
    for name in names:
      self.assertIsNotNone(int8_matrix.inputs_of(name))
    self.assertIsNone(int8_matrix.inputs_of(_HEAD))
    self.assertIsNone(int8_matrix.summed_dims('params.lm.other_post.w'))

  @parameterized.parameters(
    ('self_attention.combined_qkv.w', 'd,cdnh->cnh', (12,), (3, 3, 4)),
    ('self_attention.post.w', 'nh,dnh->d', (3, 4), (12,)),
    ('ff_layer.ffn_layer1.linear.w', 'd,df->f', (12,), (20,)),
    ('ff_layer.ffn_layer2.linear.w', 'f,fd->d', (20,), (12,)),
  )
  def test_rows_are_outputs(self, suffix, product, inputs, outputs):
    variable = next(
      v for v in layout.variables(_SHAPE) if v.name.endswith(suffix)
    )
    rng = np.random.default_rng(0)
    value = rng.normal(size=variable.shape)
    x = rng.normal(size=inputs)
    summed = int8_matrix.summed_dims(variable.name)
    rows = int8_matrix.as_rows(value, summed)
    self.assertEqual(int8_matrix.scale_shape(value.shape, summed), outputs)
    np.testing.assert_allclose(
      (rows @ x.reshape(-1)).reshape(outputs), np.einsum(product, x, value)
    )
    back = int8_matrix.from_rows(rows, value.shape, summed)
    np.testing.assert_array_equal(back, value)
    self.assertTrue(back.flags.c_contiguous)


if __name__ == '__main__':
  absltest.main()
