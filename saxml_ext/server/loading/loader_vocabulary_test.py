"""Tests for loader: params and checkpoints that differ in padded tokens."""

import tempfile

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from saxml_ext.common import errors
from saxml_ext.engine import request as request_lib
from saxml_ext.engine.testing import fast_compile
from saxml_ext.server.loading import loader
from saxml_ext.server.loading import spec
from saxml_ext.server.testing import small_model

fast_compile.install()

_TIMEOUT = 600


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
      spec.Spec(small_model.MODEL_PATH, self.directory, overrides, acls={}),
      self.fail,
    )

  def test_one_token_more_or_less_is_padding(self):
    rows = small_model.SHAPE.vocab_size
    request = request_lib.Request(np.array([1, 2, 3], np.int32))
    answers = []
    # As 50,400 and 50,401 are to each other, both ways round.
    for vocab_size in (rows, rows + 1, rows - 1):
      servable = self._load(vocab_size)
      self.addCleanup(servable.close, drain=False)
      result = servable.scheduler.generate(request).result(_TIMEOUT)
      answers.append([h.tokens.tolist() for h in result.hypotheses])
    self.assertEqual(answers, answers[:1] * 3)

  @parameterized.parameters(-2, 2)
  def test_two_tokens_are_another_model(self, difference):
    rows = small_model.SHAPE.vocab_size
    with self.assertRaisesRegex(
      errors.InvalidArgument,
      f'has vocab_size={rows}, but the serving params are for'
      f' {rows + difference}',
    ):
      self._load(rows + difference)


if __name__ == '__main__':
  absltest.main()
