import os
import pathlib

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from converters.convert import conversion
from converters.convert import model_source
from converters.hf import checkpoint as hf_checkpoint
from converters.quantize import int8_matrix
from converters.quantize import model_input
from converters.quantize import provenance
from converters.quantize import quantization
from converters.testing import quantized_files
from converters.testing import small_models
from converters.testing import unsynced
from saxml_ext.pax import errors
from saxml_ext.pax.testing import checkpoints

_RECORD = provenance.Record(provenance.Options())


def _files(directory: str) -> dict[str, bytes]:
  """Returns the contents of all files but the manifest, by relative path."""
  root = pathlib.Path(directory)
  return {
    str(path.relative_to(root)): path.read_bytes()
    for path in root.rglob('*')
    if path.is_file() and path.name != 'manifest.json'
  }


class ModelInputTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.enter_context(unsynced.files())
    self.root = self.create_tempdir().full_path
    self.source = small_models.save(os.path.join(self.root, 'source'))

  def path(self, name: str) -> str:
    return os.path.join(self.root, name)

  def quantize(self, output: str, **options) -> None:
    source = model_input.ModelInput(model_source.ModelSource(self.source))
    quantization.quantize(source, self.path(output), _RECORD, **options)

  def test_one_pass_writes_the_files_of_two_passes(self):
    conversion.convert(self.source, self.path('float'), 'float32')
    quantization.quantize(self.path('float'), self.path('two'), _RECORD)
    self.quantize('one')
    self.assertEqual(_files(self.path('one')), _files(self.path('two')))

  def test_finished_run_is_resumed_only_for_the_same_source(self):
    self.quantize('one')
    self.quantize('one', resume=True)
    with self.assertRaisesRegex(errors.CheckpointError, 'exists'):
      self.quantize('one')
    os.utime(self.source)
    with open(f'{self.source}/config.json', 'a', encoding='utf-8') as file:
      file.write('\n')
    with self.assertRaisesRegex(errors.CheckpointError, 'exists'):
      self.quantize('one', resume=True)

  @parameterized.parameters(
    'compressed_int_channel',
    'compressed_int_tensor',
    'compressed_packed_channel',
    'bitsandbytes_int8',
  )
  def test_int8_models_keep_their_codes_and_scales(self, case):
    stored, plain = quantized_files.tensors(case)
    config = quantized_files.CASES[case].config
    quantized_files.save(self.source, stored, config)
    self.quantize('one')
    arrays = checkpoints.read_variables(self.path('one'))
    # The same model, with the scales of rows in place of the matrices.
    scales = dict(plain)
    source = hf_checkpoint.HFCheckpoint(self.source)
    for name, value in plain.items():
      scale = source.read_scales(name)
      self.assertEqual(scale is None, not name.endswith('_proj.weight'))
      if scale is not None:
        scales[name] = np.ones_like(value) * scale[:, np.newaxis]
    expected = {}
    for name, tensors in (('scales', scales), ('plain', plain)):
      path = quantized_files.save(self.path(name), tensors)
      expected[name] = model_input.ModelInput(model_source.ModelSource(path))
    codes = [name for name, x in arrays.items() if x.dtype == np.int8]
    self.assertLen(codes, 14)
    for name in codes:
      scale = expected['scales'].read(name)
      steps = expected['plain'].read(name) / scale
      np.testing.assert_array_equal(arrays[name], np.rint(steps))
      self.assertLess(np.abs(arrays[name] - steps).max(), 1e-3)
      np.testing.assert_array_equal(
        arrays[f'{name}_quantized_scale'],
        scale.max(int8_matrix.summed_dims(name)),
      )
    if 'int_channel' in case:
      self.assertEqual(min(arrays[name].min() for name in codes), -128)

  def test_other_options_round_int8_models_again(self):
    case = quantized_files.CASES['compressed_int_channel']
    stored, _ = quantized_files.tensors('compressed_int_channel')
    quantized_files.save(self.source, stored, case.config)
    source = model_input.ModelInput(model_source.ModelSource(self.source))
    record = provenance.Record(provenance.Options(bits=4))
    quantization.quantize(source, self.path('four'), record)
    for array in checkpoints.read_variables(self.path('four')).values():
      if array.dtype == np.int8:
        self.assertEqual(np.abs(array).max(), 7)


if __name__ == '__main__':
  absltest.main()
