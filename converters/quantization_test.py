"""Tests of making INT8 checkpoints."""

import os

from absl.testing import absltest
from absl.testing import parameterized
import ml_dtypes
import numpy as np

from converters import quantization
from converters import quantization_errors
from converters import quantization_fixture
from converters import quantization_options
from converters import quantization_record
from converters import quantized_matrices
from saxml_ext.engine import weights as weights_lib
from saxml_ext.pax import checkpoint
from saxml_ext.pax import checkpoint_writer
from saxml_ext.pax import errors

_QKV = 'params.lm.transformer.x_layers_1.self_attention.combined_qkv.w'
_HEAD = 'params.lm.softmax.logits_ffn.linear.w'


def _record(**options) -> quantization_record.Record:
  return quantization_record.Record(quantization_options.Options(**options))


class QuantizationTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.root = self.create_tempdir().full_path
    self.source = quantization_fixture.write(os.path.join(self.root, 'float'))
    self.pax = os.path.join(self.root, 'int8')

  def quantize(self, source=None, **options) -> dict[str, np.ndarray]:
    quantization.quantize(source or self.source, self.pax, _record(**options))
    return checkpoint.read_variables(self.pax)

  def test_layout(self):
    found = self.quantize()
    source = checkpoint.read_variables(self.source)
    for name, value in source.items():
      summed = quantized_matrices.summed_dims(name, softmax=False)
      if summed is None:
        np.testing.assert_array_equal(found.pop(name), value)
        continue
      codes = found.pop(name)
      scale = found.pop(f'{name}_quantized_scale')
      self.assertEqual((codes.dtype, codes.shape), (np.int8, value.shape))
      self.assertEqual(scale.dtype, np.float32)
      peak = np.abs(value).max(summed)
      # As praxis has it, to the bit.
      np.testing.assert_array_equal(scale, peak / np.float32(127))
      steps = value / np.expand_dims(scale, summed)
      np.testing.assert_array_equal(codes, np.rint(steps))
    self.assertEmpty(found)
    self.assertEqual(
        set(os.listdir(self.pax)),
        set(os.listdir(self.source)) | {'quantization.json'},
    )

  @parameterized.parameters(
      dict(), dict(softmax=True), dict(clipping=True), dict(smoothing=0.0)
  )
  def test_same_bytes_twice_and_the_engine_takes_them(self, **options):
    variables = self.quantize(**options)
    self.assertEqual(variables[_HEAD].dtype == np.int8, 'softmax' in options)
    first = quantization_fixture.digest(self.pax)
    self.pax += '_again'
    self.quantize(**options)
    self.assertEqual(quantization_fixture.digest(self.pax), first)
    weights_lib.from_pax(
        variables, quantization_fixture.CONFIG, quantization='int8'
    )

  def test_bfloat16(self):
    source = quantization_fixture.write(
        os.path.join(self.root, 'bfloat16'), ml_dtypes.bfloat16
    )
    found = self.quantize(source)
    self.assertEqual(found[_HEAD].dtype, ml_dtypes.bfloat16)
    exact = checkpoint.read_variables(source)[_QKV].astype(np.float32)
    error = quantization_errors.matrix_error(
        _QKV, exact, found[_QKV], found[f'{_QKV}_quantized_scale'], 8
    )
    self.assertLess(error.max_steps, 0.501)

  @parameterized.parameters((8, 0.02), (6, 0.06), (4, 0.2))
  def test_errors_of_fewer_bits(self, bits, limit):
    self.quantize(bits=bits)
    record = quantization_record.read(self.pax)
    self.assertEqual(record.options.bits, bits)
    found = list(
        quantization_errors.matrix_errors(
            checkpoint.Reader(self.source), checkpoint.Reader(self.pax), record
        )
    )
    self.assertLen(found, 12)
    for error in found:
      self.assertBetween(error.relative_rms, limit / 4, limit)
      self.assertLess(error.max_steps, 0.501)
      self.assertEqual(error.clipped, 0)

  def test_errors_see_smoothing_and_clipping(self):
    self.quantize(smoothing=0.0, clipping=True, bits=4)
    record = quantization_record.read(self.pax)
    self.assertLen(record.exponents, 3)
    readers = map(checkpoint.Reader, (self.source, self.pax))
    found = list(quantization_errors.matrix_errors(*readers, record))
    self.assertGreater(max(error.max_steps for error in found), 0.6)
    self.assertGreater(max(error.clipped for error in found), 0)
    # Without the exponents the values would seem to be wrong.
    self.assertLess(max(error.relative_rms for error in found), 0.2)

  def test_refusals(self):
    self.quantize()
    with self.assertRaisesRegex(errors.CheckpointError, 'cannot be quantized'):
      quantization.quantize(self.pax, f'{self.pax}_2', _record())
    with self.assertRaisesRegex(errors.CheckpointError, 'exists'):
      quantization.quantize(self.source, self.pax, _record())
    variables = checkpoint.read_variables(self.source)
    variables[_QKV][0, 3, 1, 2] = np.nan
    bad = os.path.join(self.root, 'bad')
    checkpoint_writer.write_checkpoint(bad, variables.items())
    with self.assertRaisesRegex(errors.CheckpointError, f'{_QKV} has values'):
      quantization.quantize(bad, f'{self.pax}_3', _record())
    self.assertFalse(os.path.exists(f'{self.pax}_3/checkpoint_00000000'))


if __name__ == '__main__':
  absltest.main()
