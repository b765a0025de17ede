"""Tests of checkpoints in buckets, with emulators of gs:// and s3://."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from saxml_ext.common import storage
from saxml_ext.common.testing import bucket_emulators
from saxml_ext.pax import checkpoint
from saxml_ext.pax import checkpoint_writer
from saxml_ext.pax import errors
from saxml_ext.pax import manifest
from saxml_ext.pax import metadata

_SOURCE = manifest.Source({'model.bin': '0123'}, {'dtype': 'float32'}, 'now')
_KINDS = ('gs', 's3')


def _variables() -> dict[str, np.ndarray]:
  rng = np.random.default_rng(0)
  return {
    'params.a': rng.standard_normal((50, 100), np.float32),
    'params.b': np.zeros(7, np.float32),
    'params.c': rng.standard_normal(9, np.float32),
  }


def _tree(url: str) -> dict[str, bytes]:
  return {n: storage.read_bytes(f'{url}/{n}') for n in storage.list_tree(url)}


class CheckpointBucketsTest(parameterized.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.buckets = cls.enterClassContext(bucket_emulators.running())

  def setUp(self):
    super().setUp()
    old = metadata.MAX_CHUNK_BYTES
    metadata.MAX_CHUNK_BYTES = 4096
    self.addCleanup(setattr, metadata, 'MAX_CHUNK_BYTES', old)

  def write_rest(self, url: str, **options) -> list[str]:
    added = []
    with checkpoint_writer.Writer(url, source=_SOURCE, **options) as writer:
      for name, value in _variables().items():
        if not writer.has(name):
          writer.add(name, value)
          added.append(name)
      writer.commit()
    return added

  @parameterized.parameters(*_KINDS)
  def test_round_trip_and_the_bytes_of_a_local_one(self, kind):
    url, local = f'{self.buckets[kind]}/one', self.create_tempdir().full_path
    self.write_rest(url)
    self.write_rest(local)
    self.assertEqual(_tree(url), _tree(local))
    self.assertIn('checkpoint_00000000/state/mdl_vars.params.a/4.0', _tree(url))
    reader = checkpoint.Reader(url)
    for name, value in _variables().items():
      np.testing.assert_array_equal(reader.read(name), value)
      self.assertTrue(reader.verify(name))
    np.testing.assert_array_equal(
      reader.read_part('params.a', np.s_[7:33, 5]),
      _variables()['params.a'][7:33, 5],
    )

  @parameterized.parameters(*_KINDS)
  def test_goes_on_where_a_killed_one_stopped(self, kind):
    url, again = f'{self.buckets[kind]}/two', f'{self.buckets[kind]}/again'
    self.write_rest(url)
    killed = checkpoint_writer.Writer(again, source=_SOURCE)
    killed.add('params.a', _variables()['params.a'])
    killed.add('params.b', _variables()['params.b'])
    killed.sync()
    with self.assertRaisesRegex(errors.CheckpointError, 'is missing'):
      checkpoint.Reader(again)
    chunk = f'{again}/checkpoint_00000000/state/mdl_vars.params.b/0'
    storage.write_bytes(chunk, storage.read_bytes(chunk)[:-1])
    added = self.write_rest(again, resume=True)
    self.assertEqual(added, ['params.b', 'params.c'])
    self.assertEqual(_tree(again), _tree(url))

  @parameterized.parameters(*_KINDS)
  def test_existing_one_is_kept_unless_overwritten(self, kind):
    url = f'{self.buckets[kind]}/three'
    self.write_rest(url)
    with self.assertRaisesRegex(errors.CheckpointError, 'exists. Choose'):
      self.write_rest(url)
    writer = checkpoint_writer.Writer(url, overwrite=True, source=_SOURCE)
    with self.assertRaises(errors.CheckpointError):
      checkpoint.Reader(url)  # No old marker may remain.
    writer.add('params.c', _variables()['params.c'])
    writer.commit()
    self.assertEqual(list(checkpoint.Reader(url).specs), ['params.c'])

  def test_no_checkpoint(self):
    with self.assertRaisesRegex(errors.CheckpointError, 'cannot be listed'):
      checkpoint.Reader(f'{self.buckets["s3"]}/nothing')


if __name__ == '__main__':
  absltest.main()
