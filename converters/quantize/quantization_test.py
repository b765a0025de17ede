"""Tests of making INT8 checkpoints."""

import collections
import json
import os
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import ml_dtypes
import numpy as np

from converters.quantize import int8_matrix
from converters.quantize import provenance
from converters.quantize import quantization
from converters.quantize import rounding
from converters.quantize.report import evaluation
from converters.quantize.report import matrix_errors
from converters.testing import small_pax
from converters.testing import unsynced
from saxml_ext.engine import weights as weights_lib
from saxml_ext.pax import checkpoint
from saxml_ext.pax import checkpoint_writer
from saxml_ext.pax import errors
from saxml_ext.pax.testing import checkpoints

_QKV = 'params.lm.transformer.x_layers_1.self_attention.combined_qkv.w'
_HEAD = 'params.lm.softmax.logits_ffn.linear.w'


def _record(**options) -> provenance.Record:
  return provenance.Record(provenance.Options(**options))


class QuantizationTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.enter_context(unsynced.files())
    self.root = self.create_tempdir().full_path
    self.source = small_pax.write(os.path.join(self.root, 'float'))
    self.pax = os.path.join(self.root, 'int8')

  def quantize(self, source=None, **options) -> dict[str, np.ndarray]:
    quantization.quantize(source or self.source, self.pax, _record(**options))
    return checkpoints.read_variables(self.pax)

  def test_layout(self):
    arrays = self.quantize()
    source = checkpoints.read_variables(self.source)
    for name, value in source.items():
      summed = int8_matrix.summed_dims(name, softmax=False)
      if summed is None:
        np.testing.assert_array_equal(arrays.pop(name), value)
        continue
      codes = arrays.pop(name)
      scale = arrays.pop(f'{name}_quantized_scale')
      self.assertEqual((codes.dtype, codes.shape), (np.int8, value.shape))
      self.assertEqual(scale.dtype, np.float32)
      peak = np.abs(value).max(summed)
      # The scale must equal that of praxis exactly.
      np.testing.assert_array_equal(scale, peak / np.float32(127))
      steps = value / np.expand_dims(scale, summed)
      np.testing.assert_array_equal(codes, np.rint(steps))
    self.assertEmpty(arrays)
    self.assertEqual(
      set(os.listdir(self.pax)),
      set(os.listdir(self.source)) | {'quantization.json'},
    )

  @parameterized.parameters(
    dict(), dict(softmax=True), dict(clipping=True), dict(smoothing=0.0)
  )
  def test_runs_give_equal_bytes_that_the_engine_loads(self, **options):
    variables = self.quantize(**options)
    self.assertEqual(variables[_HEAD].dtype == np.int8, 'softmax' in options)
    first = small_pax.digest(self.pax)
    self.pax += '_again'
    self.quantize(**options)
    self.assertEqual(small_pax.digest(self.pax), first)
    weights_lib.from_pax(variables, small_pax.CONFIG, quantization='int8')

  def test_bfloat16(self):
    source = small_pax.write(
      os.path.join(self.root, 'bfloat16'), ml_dtypes.bfloat16
    )
    arrays = self.quantize(source)
    self.assertEqual(arrays[_HEAD].dtype, ml_dtypes.bfloat16)
    exact = checkpoints.read_variables(source)[_QKV].astype(np.float32)
    error = int8_matrix.measure(
      _QKV, exact, arrays[_QKV], arrays[f'{_QKV}_quantized_scale'], 8
    )
    self.assertLess(error.max_steps, 0.501)

  @parameterized.parameters((8, 0.02), (6, 0.06), (4, 0.2))
  def test_errors_of_fewer_bits(self, bits, limit):
    self.quantize(bits=bits)
    record = provenance.read(self.pax)
    self.assertEqual(record.options.bits, bits)
    errors = list(
      matrix_errors.matrix_errors(
        checkpoint.Reader(self.source), checkpoint.Reader(self.pax), record
      )
    )
    self.assertLen(errors, 12)
    for error in errors:
      self.assertBetween(error.relative_rms, limit / 4, limit)
      self.assertLess(error.max_steps, 0.501)
      self.assertEqual(error.clipped, 0)

  def test_errors_see_smoothing_and_clipping(self):
    self.quantize(smoothing=0.0, clipping=True, bits=4)
    record = provenance.read(self.pax)
    self.assertLen(record.exponents, 3)
    readers = map(checkpoint.Reader, (self.source, self.pax))
    errors = list(matrix_errors.matrix_errors(*readers, record))
    self.assertGreater(max(error.max_steps for error in errors), 0.6)
    self.assertGreater(max(error.clipped for error in errors), 0)
    # Without the exponents, the values would seem to be wrong.
    self.assertLess(max(error.relative_rms for error in errors), 0.2)

  def count_reads(self) -> collections.Counter[str]:
    """Counts the bytes read of each variable, by `<directory>: <name>`."""
    counts = collections.Counter()
    read, read_rows = checkpoint.Reader.read, checkpoint.Reader.read_rows

    def counted_read(reader, name):
      value = read(reader, name)
      counts[f'{reader.step_dir}: {name}'] += value.nbytes
      return value

    def counted_read_rows(reader, name):
      for begin, rows in read_rows(reader, name):
        counts[f'{reader.step_dir}: {name}'] += rows.nbytes
        yield begin, rows

    for method, counted in (
      ('read', counted_read),
      ('read_rows', counted_read_rows),
    ):
      self.enter_context(mock.patch.object(checkpoint.Reader, method, counted))
    return counts

  @parameterized.parameters(
    dict(), dict(softmax=True), dict(smoothing=0.0, clipping=True, bits=4)
  )
  def test_report_reads_nothing_twice(self, **options):
    record = _record(**options)
    counts = self.count_reads()
    quantization.quantize(self.source, self.pax, record, measure=True)
    text = evaluation.report(self.source, self.pax, ())
    reader = checkpoint.Reader(self.source)
    self.assertEqual(
      counts,
      {
        f'{reader.step_dir}: {name}': spec.num_bytes
        for name, spec in reader.specs.items()
      },
    )
    # The errors measured during quantization equal those of reading both sides.
    record = provenance.read(self.pax)
    self.assertEqual(
      record.errors,
      tuple(
        matrix_errors.matrix_errors(reader, checkpoint.Reader(self.pax), record)
      ),
    )
    self.assertLen(record.errors, 13 if 'softmax' in options else 12)
    self.assertRegex(text, r'2 self_attention.post +0\.\d+ +\d+\.')

  def test_resumed_run_measures_only_new_matrices(self):
    record = _record(smoothing=None)
    quantization.quantize(self.source, self.pax, record, measure=True)
    evaluation.report(self.source, self.pax, ())
    expected = small_pax.digest(self.pax)
    self.pax += '_killed'

    class KilledError(Exception):
      pass

    add, left = checkpoint_writer.Writer.add, 10

    def add_until_killed(*args):
      nonlocal left
      left -= 1
      if not left:
        raise KilledError
      add(*args)

    with (
      mock.patch.object(checkpoint_writer.Writer, 'add', add_until_killed),
      self.assertRaises(KilledError),
    ):
      quantization.quantize(self.source, self.pax, record, measure=True)
    counts = self.count_reads()
    quantization.quantize(
      self.source, self.pax, record, resume=True, measure=True
    )
    evaluation.report(self.source, self.pax, ())
    self.assertEqual(small_pax.digest(self.pax), expected)
    # The killed run had finished four matrices and the codes of a fifth.
    read = [name.partition(': ')[2] for name in counts]
    self.assertLen(read, len(set(read)))
    self.assertLen([name for name in read if int8_matrix.summed_dims(name)], 8)
    # A run without measurement stores no errors, so its matrices are made
    # again.
    self.pax += '_plain'
    left = 10
    with (
      mock.patch.object(checkpoint_writer.Writer, 'add', add_until_killed),
      self.assertRaises(KilledError),
    ):
      quantization.quantize(self.source, self.pax, record)
    quantization.quantize(
      self.source, self.pax, record, resume=True, measure=True
    )
    evaluation.report(self.source, self.pax, ())
    self.assertEqual(small_pax.digest(self.pax), expected)

  def test_record_of_an_earlier_version_has_no_errors(self):
    self.quantize()
    path = os.path.join(self.pax, provenance.FILE_NAME)
    with open(path, encoding='ascii') as f:
      document = json.load(f)
    del document['errors']
    with open(path, 'w', encoding='ascii') as f:
      json.dump(document, f)
    self.assertEmpty(provenance.read(self.pax).errors)

  def test_report_needs_a_record(self):
    self.quantize()
    os.remove(os.path.join(self.pax, provenance.FILE_NAME))
    with self.assertRaisesRegex(
      errors.CheckpointError, 'has no quantization.json'
    ):
      evaluation.report(self.source, self.pax, ())

  def test_only_matrices_are_measured(self):
    value = np.ones(4, np.float32)
    with self.assertRaisesRegex(ValueError, 'norm.scale is not a matrix'):
      int8_matrix.measure('norm.scale', value, value, value, 8)

  def test_clipping_is_weighted_by_the_inputs(self):
    rng = np.random.default_rng(0)
    squares = {
      'norm': rng.exponential(size=32) ** 3,
      'mixed': rng.exponential(size=32) ** 3,
      'hidden': rng.exponential(size=64) ** 3,
    }
    stats = {
      name: int8_matrix.InputStats(None, value.astype(np.float32), None)
      for name, value in squares.items()
    }
    record = _record(clipping=True, bits=4)
    quantization.quantize(self.source, self.pax, record, lambda _: stats)
    rows = int8_matrix.as_rows(
      checkpoints.read_variables(self.source)[_QKV], (1,)
    )
    np.testing.assert_array_equal(
      checkpoints.read_variables(self.pax)[f'{_QKV}_quantized_scale'].ravel(),
      rounding.clipped_scales(rows, 7, stats['norm'].mean_square),
    )

  def test_tokenizer_is_copied(self):
    merges = os.path.join(self.source, 'merges.txt')
    vocabulary = os.path.join(self.source, 'vocab.json')
    for path in (merges, vocabulary):
      with open(path, 'w', encoding='ascii') as f:
        f.write('{"a": 0}')
    self.quantize()
    for name in ('merges.txt', 'vocab.json', 'tokenizer.json'):
      with (
        open(os.path.join(self.source, name), 'rb') as expected,
        open(os.path.join(self.pax, name), 'rb') as copy,
      ):
        self.assertEqual(copy.read(), expected.read())

  def test_bad_checkpoints_are_refused(self):
    self.quantize()
    with self.assertRaisesRegex(errors.CheckpointError, 'cannot be quantized'):
      quantization.quantize(self.pax, f'{self.pax}_2', _record())
    with self.assertRaisesRegex(errors.CheckpointError, 'exists'):
      quantization.quantize(self.source, self.pax, _record())
    variables = checkpoints.read_variables(self.source)
    variables[_QKV][0, 3, 1, 2] = np.nan
    bad = os.path.join(self.root, 'bad')
    checkpoints.write_checkpoint(bad, variables.items())
    with self.assertRaisesRegex(errors.CheckpointError, f'{_QKV} has values'):
      quantization.quantize(bad, f'{self.pax}_3', _record())
    self.assertFalse(os.path.exists(f'{self.pax}_3/checkpoint_00000000'))


if __name__ == '__main__':
  absltest.main()
