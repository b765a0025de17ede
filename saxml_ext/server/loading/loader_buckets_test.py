"""Tests that models are loaded from buckets, with emulators of both kinds."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tokenizers

from saxml_ext.common import errors
from saxml_ext.common import storage
from saxml_ext.common.testing import bucket_emulators
from saxml_ext.engine import request as request_lib
from saxml_ext.params import lm_cloud
from saxml_ext.server.lifecycle import entry as entry_lib
from saxml_ext.server.loading import loader
from saxml_ext.server.testing import small_model
from saxml_ext.server.vocabulary import codec


class LoaderBucketsTest(parameterized.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.buckets = cls.enterClassContext(bucket_emulators.running())

  def test_bucket_model_answers_like_a_local_one(self):
    answers = []
    for root in (*self.buckets.values(), self.create_tempdir().full_path):
      path = small_model.write(f'{root}/pax')
      ready = loader.prepare(
        entry_lib.Spec(small_model.MODEL_PATH, path, overrides={}, acls={})
      )
      self.assertEqual(ready.settings.engine.eos_id, small_model.EOS_ID)
      runner = ready.start()
      runner.prefill_and_insert(
        {0: request_lib.Request(np.array([1, 2, 3], np.int32))}
      )
      result = {}
      while not result:
        result = runner.step()
      answers.append([h.tokens.tolist() for h in result[0].hypotheses])
    self.assertLen(answers, 3)
    self.assertLen(answers[0], 2)
    self.assertEqual(answers, [answers[0]] * 3)

  @parameterized.parameters('gs', 's3')
  def test_tokenizer_is_read_from_a_bucket(self, kind):
    model = tokenizers.models.WordLevel(
      {'good': 0, 'news': 1}, unk_token='good'
    )
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    url = f'{self.buckets[kind]}/words'
    storage.write_bytes(f'{url}/tokenizer.json', tokenizer.to_str().encode())
    for where, checkpoint in ((None, f'{url}/checkpoint_00000000'), (url, '')):
      words = codec.load_tokenizer(where, checkpoint)
      self.assertEqual(words.encode('news good').tolist(), [1, 0])

  @parameterized.parameters('gs', 's3')
  def test_sentencepiece_model_is_read_from_a_bucket(self, kind):
    url = f'{self.buckets[kind]}/pieces/small.model'
    with open(lm_cloud.SMALL_VOCABULARY, 'rb') as f:
      storage.write_bytes(url, f.read())
    words = codec.load_tokenizer(url, '')
    self.assertEqual(words.decode(words.encode('good news')), 'good news')

  @parameterized.parameters('gs', 's3')
  def test_missing_files_are_reported(self, kind):
    url = f'{self.buckets[kind]}/nothing'
    with self.assertRaisesRegex(
      errors.InvalidArgument, f"'{url}' is not a directory"
    ):
      loader.prepare(entry_lib.Spec(small_model.MODEL_PATH, url, {}, {}))
    with self.assertRaisesRegex(
      errors.InvalidArgument, f'none of these files exists: {url}'
    ):
      codec.load_tokenizer(None, url)


if __name__ == '__main__':
  absltest.main()
