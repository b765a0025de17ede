"""Tests of conversion into buckets, with emulators of gs:// and s3://."""

import os

from absl.testing import absltest
from absl.testing import parameterized

from converters.convert import conversion
from converters.testing import small_models
from converters.verify import comparison
from saxml_ext.common import storage
from saxml_ext.common.testing import bucket_emulators


class ConvertToBucketsTest(parameterized.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.buckets = cls.enterClassContext(bucket_emulators.running())

  @parameterized.parameters('gs', 's3')
  def test_same_files_as_on_a_disk(self, kind):
    root = self.create_tempdir().full_path
    base = small_models.save(os.path.join(root, 'hf'))
    url, local = f'{self.buckets[kind]}/pax', os.path.join(root, 'pax')
    done = conversion.convert(base, url, 'float32')
    self.assertEqual(done.step_dir, f'{url}/checkpoint_00000000')
    conversion.convert(base, local, 'float32')
    names = storage.list_tree(local)
    self.assertIn('gptj_config.json', names)
    self.assertEqual(storage.list_tree(url), names)
    for name in names:
      self.assertEqual(
        storage.read_bytes(f'{url}/{name}'),
        storage.read_bytes(f'{local}/{name}'),
      )
    rows = list(comparison.compare_with_hf(base, url))
    self.assertEqual({row.problem for row in rows}, {''})
    resumed = conversion.convert(base, url, 'float32', resume=True)
    self.assertEqual(resumed.resumed_bytes, done.num_bytes)


if __name__ == '__main__':
  absltest.main()
