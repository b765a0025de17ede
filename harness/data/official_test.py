import os
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from harness.caching import cache as cache_lib
from harness.data import official
from saxml_ext.common import user_path


class OfficialTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    root = os.path.join(self.create_tempdir().full_path, 'a cache')
    self._cache = cache_lib.Cache(root).create()

  def _write(self, path: str) -> str:
    path = os.path.join(self._cache.root, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, 'w', encoding='utf-8') as file:
      file.write('{}')
    return path

  def test_finds_files(self):
    dev = self._write('data/squad/dev-v1.1.json')
    vocab = self._write('data/squad/vocab.txt')
    self.assertEqual(official.path('bert', 'dataset', self._cache), dev)
    self.assertEqual(official.path('bert', 'vocab', self._cache), vocab)

  def test_finds_the_checkpoint_and_its_tokenizer_where_they_were_unpacked(
    self,
  ):
    config = self._write('models/gpt-j/checkpoint-final/config.json')
    self._write('models/gpt-j/checkpoint-final/vocab.json')
    folder = os.path.dirname(config)
    self.assertEqual(official.path('gptj', 'checkpoint', self._cache), folder)
    self.assertEqual(official.path('gptj', 'tokenizer', self._cache), folder)
    own = self._write('models/gpt-j-tokenizer/tokenizer.json')
    self.assertEqual(
      official.path('gptj', 'tokenizer', self._cache), os.path.dirname(own)
    )

  def test_missing_file_is_reported_with_the_commands(self):
    with self.assertRaises(ValueError) as caught:
      official.path('gptj', 'calibration', self._cache)
    data = self._cache.data
    lines = str(caught.exception).splitlines()
    self.assertLen(lines, 4)
    self.assertIn(
      f'{data}/cnn_dailymail/cnn_dailymail_calibration.json does not exist',
      lines[0],
    )
    self.assertIn(
      "abisee/cnn_dailymail --repo-type dataset --include '3.0.0/train-*'"
      f" --local-dir '{data}'/cnn_dailymail_hub",
      lines[1],
    )
    self.assertEndsWith(lines[2], '/language/gpt-j/calibration-list.txt')
    self.assertStartsWith(
      lines[3],
      '  ./bazelw run //harness/data:prepare_cnn_dailymail -- --input=',
    )
    self.assertEndsWith(lines[3], f" --cache_dir='{self._cache.root}'")

  def test_default_cache_needs_no_flag(self):
    with mock.patch.dict(os.environ, {user_path.CACHE: '/c'}):
      lines = official.item('gptj', 'dataset').instructions(
        cache_lib.Cache('/c')
      )
    self.assertEndsWith(lines[1], '--input=/c/data/cnn_dailymail_hub')

  @parameterized.parameters(
    ('gptj', 'vocab', 'Choose one of dataset, calibration, tokenizer, check'),
    (
      'bert',
      'tokenizer',
      'Choose one of dataset, vocab, calibration, config, onnx',
    ),
    ('llama', 'dataset', 'Choose one of gptj, bert'),
  )
  def test_unknown_names(self, benchmark, name, message):
    with self.assertRaisesRegex(ValueError, message):
      official.path(benchmark, name, self._cache)

  def test_every_item_is_whole(self):
    names = [(item.benchmark, item.name) for item in official.ITEMS]
    self.assertLen(set(names), len(names))
    for item in official.ITEMS:
      lines = item.instructions(self._cache)
      self.assertNotEmpty(lines)
      for line in lines:
        self.assertNotRegex(line, r'[{}]')
      self.assertIsNone(item.usable_path(self._cache))


if __name__ == '__main__':
  absltest.main()
