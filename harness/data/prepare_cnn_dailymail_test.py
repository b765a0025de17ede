import contextlib
import hashlib
import io
import os
from unittest import mock

from absl import app
from absl.testing import absltest
from absl.testing import flagsaver
import pyarrow
from pyarrow import parquet

from harness.benchmarks import llama
from harness.caching import cache as cache_lib
from harness.data import cnn_dailymail
from harness.data import prepare_cnn_dailymail
from saxml_ext.evaluation import dataset
from saxml_ext.evaluation import tokenizer as tokenizer_lib


class PrepareCnnDailymailTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._dir = self.create_tempdir().full_path
    self._hub = os.path.join(self._dir, 'hub', '3.0.0')
    os.makedirs(self._hub)
    self._cache = cache_lib.Cache(os.path.join(self._dir, 'cache'))

  def _parquet(self, split: str, count: int) -> str:
    rows = [
      {'article': f'Article {n}', 'highlights': f'High {n}', 'id': f'{n:040x}'}
      for n in range(count)
    ]
    path = os.path.join(self._hub, f'{split}-00000-of-00001.parquet')
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path

  def _list(self) -> str:
    path = os.path.join(self._dir, 'calibration-list.txt')
    lines = ''.join(f'{n * 3:040x}\n' for n in range(1000))
    with open(path, 'w', encoding='utf-8') as file:
      file.write(lines)
    self.enter_context(
      mock.patch.object(
        cnn_dailymail,
        'LIST_SHA256',
        hashlib.sha256(lines.encode()).hexdigest(),
      )
    )
    return path

  def _run(self, **values) -> str:
    printed = io.StringIO()
    values = {
      'input': [os.path.join(self._dir, 'hub')],
      'cache_dir': self._cache.root,
    } | values
    with flagsaver.flagsaver(**values), contextlib.redirect_stdout(printed):
      prepare_cnn_dailymail.main(('prepare_cnn_dailymail',))
    return printed.getvalue()

  def _kept(self) -> str:
    return os.path.join(self._cache.data, 'cnn_dailymail')

  def test_makes_both_files_in_the_cache(self):
    self._parquet('validation', cnn_dailymail.EVAL_COUNT)
    self._parquet('train', 3000)
    printed = self._run(calibration_list=self._list())
    first, second = printed.splitlines()
    self.assertIn('cnn_eval.json: 13368 articles, SHA-256 ', first)
    self.assertIn('cnn_dailymail_calibration.json: 1000 articles', second)
    self.assertTrue(self._cache.is_ours)
    articles = dataset.load_articles(
      os.path.join(self._kept(), 'cnn_eval.json')
    )
    self.assertLen(articles, 13368)
    calibration = dataset.load_articles(
      os.path.join(self._kept(), 'cnn_dailymail_calibration.json')
    )
    self.assertEqual(calibration[999].input, 'Article 2997')

  def test_files_may_come_one_by_one(self):
    self._parquet('train', 3000)
    output = os.path.join(self._dir, 'out')
    self._run(calibration_list=self._list(), output_dir=output)
    self.assertEqual(os.listdir(output), ['cnn_dailymail_calibration.json'])
    self.assertFalse(os.path.exists(self._cache.root))

  def test_makes_the_files_of_llama(self):
    self._parquet('validation', cnn_dailymail.EVAL_COUNT)
    self._parquet('train', 3000)
    printed = self._run(
      calibration_list=self._list(),
      tokenizer_path=llama.BUNDLE.tokenizer,
    )
    folder = os.path.join(self._cache.data, 'cnn_dailymail_llama')
    for line, (name, count) in zip(
      printed.splitlines(),
      (
        ('cnn_eval.json', 13368),
        ('sample_cnn_eval_5000.json', 5000),
        ('cnn_dailymail_calibration.json', 1000),
      ),
      strict=True,
    ):
      path = os.path.join(folder, name)
      self.assertStartsWith(line, f'{path}: {count} articles, SHA-256 ')
      articles = dataset.load_articles(path)
      self.assertLen(articles, count)
      tokenizer = tokenizer_lib.load(llama.BUNDLE.tokenizer)
      ids = dataset.encode_prompts(articles, tokenizer, None)[-1]
      self.assertEqual(
        tokenizer.decode(ids), articles[-1].filled(dataset.LLAMA_TEMPLATE)
      )
      self.assertEqual(ids[0], tokenizer.token_to_id('<|begin_of_text|>'))

  def test_short_file_leaves_nothing(self):
    self._parquet('validation', 100)
    with self.assertRaisesRegex(
      SystemExit, 'prepare_cnn_dailymail: .* has 13368 articles, .* has 100'
    ):
      self._run()
    self.assertFalse(os.path.exists(self._kept()))

  def test_tells_what_is_missing(self):
    with self.assertRaisesRegex(SystemExit, '//harness/data:download prints'):
      self._run()
    with self.assertRaisesRegex(SystemExit, '/nowhere does not exist'):
      self._run(input=['/nowhere'])
    with self.assertRaisesRegex(app.UsageError, "'extra'.*with --input"):
      prepare_cnn_dailymail.main(('prepare_cnn_dailymail', 'extra'))


if __name__ == '__main__':
  absltest.main()
