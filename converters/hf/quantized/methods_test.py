"""Tests of choosing the reader of quantized weights."""

from absl.testing import absltest
from absl.testing import parameterized

from converters.hf.quantized import methods
from saxml_ext.pax import errors


def _compressed(**changes) -> dict:
  weights = {
    'num_bits': 8,
    'type': 'int',
    'symmetric': True,
    'strategy': 'channel',
  }
  group = {'targets': ['Linear'], 'weights': {**weights, **changes}}
  return {
    'quant_method': 'compressed-tensors',
    'format': 'int-quantized',
    'config_groups': {'group_0': group},
  }


class MethodsTest(parameterized.TestCase):
  def read(self, settings):
    return methods.read('config.json', {'quantization_config': settings})

  @parameterized.parameters(
    ({'quant_method': 'fp8'}, 'FP8'),
    ({'load_in_8bit': True}, 'bitsandbytes with 8 bits'),
    ({'quant_method': 'gptq', 'bits': 8}, 'GPTQ with 8 bits'),
    ({'quant_method': 'awq', 'version': 'gemm'}, 'AWQ with 4 bits'),
    (_compressed(), 'compressed-tensors int-quantized'),
  )
  def test_title_names_the_method(self, settings, title):
    self.assertEqual(self.read(settings).title, title)

  def test_older_key_of_compressed_tensors(self):
    settings = _compressed()
    del settings['quant_method']
    scheme = methods.read('config.json', {'compression_config': settings})
    self.assertEqual(scheme.title, 'compressed-tensors int-quantized')

  def test_no_settings_are_no_method(self):
    self.assertIsNone(self.read(None))
    self.assertIsNone(self.read({}))

  @parameterized.parameters(
    ({'quant_method': 'fp8', 'fmt': 'e5m2'}, 'fmt is "e5m2". Expected "e4m3"'),
    ({'quant_method': 'fp8', 'weight_block_size': [0, 1]}, 'weight_block_size'),
    ({'quant_method': 'fp8', 'weight_block_size': 'axb'}, 'weight_block_size'),
    ({'quant_method': 'gptq', 'bits': 3}, 'bits is 3. Expected one of 4, 2, 8'),
    (
      {'quant_method': 'gptq', 'checkpoint_format': 'marlin'},
      'checkpoint_format is "marlin". Expected one of "gptq", "gptq_v2"',
    ),
    ({'quant_method': 'gptq', 'group_size': 0}, 'group_size is 0'),
    ({'quant_method': 'awq', 'version': 'gemv'}, 'version is "gemv"'),
    ({'quant_method': 'awq', 'zero_point': False}, 'zero_point is false'),
    (
      {'quant_method': 'compressed-tensors', 'format': 'nvfp4-pack-quantized'},
      'format is "nvfp4-pack-quantized". Expected one of "int-quantized",',
    ),
    (
      {**_compressed(), 'sparsity_config': {'format': 'sparse-24-bitmask'}},
      'sparsity_config is',
    ),
    (
      {**_compressed(), 'transform_config': {'config_groups': {'R1': {}}}},
      'transform_config is',
    ),
    ({**_compressed(), 'config_groups': {}}, 'config_groups is {}'),
    ({**_compressed(), 'config_groups': {'a': []}}, 'config_groups is'),
    (_compressed(num_bits=3), 'weights: num_bits is 3. Expected one of 8, 4'),
    (_compressed(type='float', num_bits=4), 'num_bits is 4. Expected 8'),
    (_compressed(strategy='token'), 'strategy is "token"'),
    (_compressed(strategy='group'), 'group_size is missing'),
    (_compressed(strategy='group', group_size=[]), 'group_size is []'),
    (_compressed(strategy='block'), 'block_structure is missing'),
  )
  def test_unsupported_settings_are_named_with_the_remedy(
    self, settings, message
  ):
    with self.assertRaises(errors.CheckpointError) as caught:
      self.read(settings)
    text = str(caught.exception)
    self.assertStartsWith(text, 'config.json: quantization_config: ')
    self.assertIn(message, text)
    self.assertIn('model.dequantize().save_pretrained', text)


if __name__ == '__main__':
  absltest.main()
