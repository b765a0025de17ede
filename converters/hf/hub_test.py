"""Tests of finding checkpoints by their Hugging Face id."""

import os
import pathlib
import time
from unittest import mock

from absl.testing import absltest
from huggingface_hub import constants

from converters.hf import hub
from converters.testing import fake_hub
from converters.testing import small_models
from saxml_ext.pax import errors

_ID = 'EleutherAI/gpt-j-6b'
_CACHED = 'models--EleutherAI--gpt-j-6b'
# No server listens on this port.
_NOWHERE = 'http://127.0.0.1:9'


class HubTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.cache = self.create_tempdir().full_path
    self.set_hub(
      HF_HUB_CACHE=self.cache,
      HF_TOKEN_PATH=os.path.join(self.cache, 'token'),
    )
    self.set_endpoint(_NOWHERE)

  def set_hub(self, **changes) -> None:
    # huggingface_hub reads its environment only once, at import time.
    for name, value in changes.items():
      self.enter_context(mock.patch.object(constants, name, value))

  def set_endpoint(self, url: str) -> None:
    template = f'{url}/{{repo_id}}/resolve/{{revision}}/{{filename}}'
    self.set_hub(ENDPOINT=url, HUGGINGFACE_CO_URL_TEMPLATE=template)

  def snapshot(self) -> str:
    return os.path.join(self.cache, _CACHED, 'snapshots', fake_hub.REVISION)

  def fill_cache(self) -> str:
    """Writes a model to the cache of huggingface_hub, as links to blobs."""
    blobs = small_models.save(os.path.join(self.cache, _CACHED, 'blobs'))
    refs = os.path.join(self.cache, _CACHED, 'refs')
    os.makedirs(refs)
    pathlib.Path(refs, 'main').write_text(fake_hub.REVISION)
    os.makedirs(self.snapshot())
    for name in os.listdir(blobs):
      os.symlink(f'../../blobs/{name}', os.path.join(self.snapshot(), name))
    return self.snapshot()

  def files(self) -> dict[str, bytes]:
    root = small_models.save(self.create_tempdir().full_path)
    return {f.name: f.read_bytes() for f in pathlib.Path(root).iterdir()}

  def test_cached_model_needs_no_network(self):
    expected = self.fill_cache()
    self.assertEqual(hub.locate(_ID), expected)
    self.set_hub(HF_HUB_OFFLINE=True)
    self.assertEqual(hub.locate(_ID), expected)

  def test_tokenizer_is_fetched_without_its_model(self):
    files = self.files() | {'tokenizer.json': b'{}'}
    with fake_hub.running(_ID, files) as (url, downloads):
      self.set_endpoint(url)
      directory = hub.locate_tokenizer(_ID)
    self.assertIn('tokenizer.json', os.listdir(directory))
    self.assertNotIn('model.safetensors', downloads)
    # The hub has stopped, but the cache contains the tokenizer.
    self.assertEqual(hub.locate_tokenizer(_ID), directory)
    self.assertEqual(
      hub.locate_tokenizer('/a/tokenizer.json'), '/a/tokenizer.json'
    )

  def test_unavailable_tokenizer_is_reported(self):
    with self.assertRaisesRegex(
      ValueError, f'--tokenizer_path={_ID} is neither a local path nor in the'
    ):
      hub.locate_tokenizer(_ID)
    with fake_hub.running(_ID, {'config.json': b'{}'}) as (url, _):
      self.set_endpoint(url)
      with self.assertRaisesRegex(ValueError, 'has none of tokenizer.json'):
        hub.locate_tokenizer(_ID)

  def test_directory_of_that_name_comes_first(self):
    self.fill_cache()
    start = self.create_tempdir().full_path
    os.makedirs(os.path.join(start, _ID))
    with mock.patch.dict(os.environ, {'BUILD_WORKING_DIRECTORY': start}):
      self.assertEqual(hub.locate(_ID), os.path.join(start, _ID))
      for path in ('a', 'a/b/c', './a/b', '../a/b', '/a/b'):
        self.assertEqual(hub.locate(path), os.path.join(start, path))

  def test_downloads_needed_files_once(self):
    small = self.files()
    unneeded = ('pytorch_model.bin', 'flax_model.msgpack', 'modeling.py')
    files = small | {'vocab.json': b'{}'} | dict.fromkeys(unneeded, b'x')
    with fake_hub.running(_ID, files) as (url, downloads):
      self.set_endpoint(url)
      directory = hub.locate(_ID)
      self.assertEqual(directory, self.snapshot())
      self.assertEqual(hub.locate(_ID), directory)
    self.assertEqual(downloads, {n: 1 for n in (*small, 'vocab.json')})
    self.assertCountEqual(os.listdir(directory), downloads)
    for name in small:
      content = pathlib.Path(directory, name).read_bytes()
      self.assertEqual(content, files[name])
    # The hub has stopped. The cache has only the files that a conversion needs.
    self.assertEqual(hub.locate(_ID), directory)

  def test_snapshot_that_lacks_weights_is_completed(self):
    os.remove(os.path.join(self.fill_cache(), 'model.safetensors'))
    with fake_hub.running(_ID, self.files()) as (url, downloads):
      self.set_endpoint(url)
      self.assertEqual(hub.locate(_ID), self.snapshot())
    self.assertEqual(downloads['model.safetensors'], 1)

  def test_shards(self):
    shards = [f'pytorch_model-{i:05d}-of-00002.bin' for i in (1, 2)]
    index = b'{"weight_map": {"a": "%s", "b": "%s"}}' % tuple(
      shard.encode() for shard in shards
    )
    names = (*shards, 'config.json', 'model-00001-of-00001.safetensors')
    files = {name: name.encode() for name in names}
    files['pytorch_model.bin.index.json'] = index
    with fake_hub.running(_ID, files) as (url, downloads):
      self.set_endpoint(url)
      hub.locate(_ID)
      self.assertCountEqual(
        downloads, [*shards, 'config.json', 'pytorch_model.bin.index.json']
      )
      os.remove(os.path.join(self.snapshot(), shards[1]))
      hub.locate(_ID)
      self.assertTrue(os.path.exists(os.path.join(self.snapshot(), shards[1])))

  def test_small_files_come_without_weights(self):
    with fake_hub.running(_ID, self.files()) as (url, downloads):
      self.set_endpoint(url)
      directory = hub.locate(_ID, weights=False)
      self.assertEqual(list(downloads), ['config.json'])
      self.assertFalse(hub.has_weights(directory))
      self.assertEqual(hub.locate(_ID), directory)
      self.assertTrue(hub.has_weights(directory))
    self.assertEqual(hub.locate(_ID, weights=False), directory)

  def test_unknown_model_is_reported(self):
    with fake_hub.running(_ID, {}) as (url, _):
      self.set_endpoint(url)
      with self.assertRaisesRegex(
        errors.CheckpointError,
        'base=EleutherAI/gpt-k is neither a local directory .*Correct the name',
      ):
        hub.locate('EleutherAI/gpt-k')

  def test_missing_network_is_reported(self):
    message = (
      f'base={_ID} is neither .*{self.cache}.*hf download {_ID}".*'
      'pass its path.'  # //:serve has no --base.
    )
    with (
      mock.patch.object(time, 'sleep') as sleep,
      self.assertRaisesRegex(errors.CheckpointError, message),
    ):
      hub.locate(_ID)
    # The pauses between six attempts took 23 s.
    self.assertLess(sum(call.args[0] for call in sleep.call_args_list), 15)
    self.set_hub(HF_HUB_OFFLINE=True)
    with self.assertRaisesRegex(errors.CheckpointError, message):
      hub.locate(_ID)


if __name__ == '__main__':
  absltest.main()
