import os
import pathlib

from absl.testing import absltest

from converters.convert import conversion
from converters.convert import model_source
from converters.quantize import model_input
from converters.quantize import provenance
from converters.quantize import quantization
from converters.testing import small_models
from converters.testing import unsynced
from saxml_ext.pax import errors

_RECORD = provenance.Record(provenance.Options())


def _files(directory: str) -> dict[str, bytes]:
  """Returns the contents of all files but the manifest, by relative path."""
  root = pathlib.Path(directory)
  return {
    str(path.relative_to(root)): path.read_bytes()
    for path in root.rglob('*')
    if path.is_file() and path.name != 'manifest.json'
  }


class ModelInputTest(absltest.TestCase):
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


if __name__ == '__main__':
  absltest.main()
