"""Tests of params and checkpoints that differ in padded tokens."""

import tempfile

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from saxml_ext.common import errors
from saxml_ext.engine import request as request_lib
from saxml_ext.params import lm_cloud
from saxml_ext.params import settings as settings_lib
from saxml_ext.server.lifecycle import entry as entry_lib
from saxml_ext.server.loading import loader
from saxml_ext.server.testing import small_model

_TIMEOUT = 600


def _vocabulary() -> bytes:
  with open(lm_cloud.SMALL_VOCABULARY, 'rb') as file:
    return file.read()


class LoaderVocabularyTest(parameterized.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.directory = small_model.write(
      tempfile.mkdtemp(dir=absltest.TEST_TMPDIR.value)
    )

  def _load(self, vocab_size: int):
    overrides = {'VOCAB_SIZE': str(vocab_size), 'MAX_DECODE_STEPS': '4'}
    return loader.load(
      entry_lib.Spec(
        small_model.MODEL_PATH, self.directory, overrides, acls={}
      ),
      self.fail,
    )

  def test_one_padding_token_more_or_less_is_accepted(self):
    rows = small_model.SHAPE.vocab_size
    request = request_lib.Request(np.array([1, 2, 3], np.int32))
    answers = []
    # The sizes differ by one in both directions, like 50,400 and 50,401.
    for vocab_size in (rows, rows + 1, rows - 1):
      servable = self._load(vocab_size)
      self.addCleanup(servable.close, drain=False)
      result = servable.scheduler.generate(request).result(_TIMEOUT)
      answers.append([h.tokens.tolist() for h in result.hypotheses])
    self.assertEqual(answers, answers[:1] * 3)

  @parameterized.parameters(-2, 2)
  def test_two_more_tokens_are_refused(self, difference):
    rows = small_model.SHAPE.vocab_size
    with self.assertRaisesRegex(
      errors.InvalidArgument,
      f'has vocab_size={rows}, but the serving params require'
      f' {rows + difference}',
    ):
      self._load(rows + difference)

  def test_tokenized_model_may_have_a_tokenizer(self):
    settings = settings_lib.Settings.from_params(small_model.Small)
    directory = self.create_tempdir()

    def codecs():
      return loader.load_codecs(settings, 50, directory.full_path)

    self.assertIsNone(codecs().words)
    directory.create_file('tokenizer.model', _vocabulary(), mode='wb')
    loaded = codecs()
    self.assertEqual(loaded.words.decode(loaded.words.encode('a b')), 'a b')
    # The model's texts are still ids.
    self.assertEqual(loaded.input.encode('1,2').tolist(), [1, 2])
    self.assertEqual(loaded.output.decode([1, 2]), '1,2')
    # A damaged tokenizer is ignored.
    directory.create_file('tokenizer.model', _vocabulary()[:99], mode='wb')
    self.assertIsNone(codecs().words)


if __name__ == '__main__':
  absltest.main()
