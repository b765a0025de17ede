"""Tests of quantizing from buckets into buckets, with storage emulators."""

import os

from absl.testing import absltest
from absl.testing import flagsaver
from absl.testing import parameterized

from converters import offline_quantize
from converters.testing import small_pax
from converters.testing import unsynced
from saxml_ext.common import storage
from saxml_ext.common.testing import bucket_emulators

_STEP = 'checkpoint_00000000/state'


class QuantizeInBucketsTest(parameterized.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.buckets = cls.enterClassContext(bucket_emulators.running())

  @parameterized.parameters('gs', 's3')
  def test_same_files_as_on_a_disk(self, kind):
    self.enter_context(unsynced.files())
    root = self.create_tempdir().full_path
    source = small_pax.write(os.path.join(root, 'float'))
    bucket = f'{self.buckets[kind]}/quantize'
    for name in storage.list_tree(source):
      data = storage.read_bytes(f'{source}/{name}')
      storage.write_bytes(f'{bucket}/float/{name}', data)
    local = os.path.join(root, 'int8')
    for start, end in ((bucket, f'{bucket}/int8'), (root, local)):
      # The published guide uses these names of the flags.
      with flagsaver.flagsaver(
        input_dir=f'{start}/float/{_STEP}',
        output_dir=f'{end}/{_STEP}',
        quantization_configs='gptj',
        smoothing=0.0,
      ):
        offline_quantize.main(['offline_quantize'])
    names = storage.list_tree(local)
    self.assertContainsSubset(
      ['tokenizer.json', 'gptj_config.json', 'quantization.json'], names
    )
    self.assertEqual(storage.list_tree(f'{bucket}/int8'), names)
    for name in names:
      # The report lacks the sizes of objects in a bucket, so it differs.
      if 'report' not in name:
        self.assertEqual(
          storage.read_bytes(f'{bucket}/int8/{name}'),
          storage.read_bytes(f'{local}/{name}'),
        )
    text = storage.read_bytes(f'{bucket}/int8/quantization_report.txt')
    self.assertIn(b'0 self_attention.post', text)


if __name__ == '__main__':
  absltest.main()
