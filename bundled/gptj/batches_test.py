"""Tests batches of training stories."""

from unittest import mock

from absl.testing import absltest
import torch

from bundled.gptj import batches
from bundled.gptj import corpus
from harness.data import bundle
from saxml_ext.evaluation import tokenizer as tokenizer_lib

_END = 4095
_POOL = 24


class BatchesTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.enter_context(mock.patch.object(batches, '_POOL', _POOL))
    self._bpe = tokenizer_lib.load(bundle.tokenizer_path())

  def _stream(self, longest=1024):
    return batches.Batches(
      self._bpe, _END, tokens=2048, longest=longest, article_weight=0.5
    )

  def test_a_row_is_prompt_answer_and_end(self):
    wanted = {
      tuple(self._bpe.encode(f'{s.prompt} {s.output}').ids)
      for s in corpus.stories('train', _POOL)
    }
    ids, weights = self._stream().draw()
    self.assertEqual(ids.shape, weights.shape)
    self.assertLessEqual(ids.numel(), 2048)
    for row, weight in zip(ids, weights):
      length = int((weight > 0).sum())
      self.assertEqual(row[length - 1], _END)
      text = self._bpe.decode(row[: length - 1].tolist())
      self.assertIn(
        tuple(self._bpe.encode(text).ids), wanted, 'not a training story'
      )
      answer = self._bpe.decode(row[weight == 1].tolist())
      self.assertTrue(text.endswith(answer))
      self.assertTrue(text[: -len(answer)].endswith('### Response:'))
      self.assertTrue((row[length:] == _END).all())

  def test_what_is_too_long_loses_its_end(self):
    stream = self._stream(longest=100)
    for _ in range(3):
      ids, _ = stream.draw()
      self.assertLessEqual(ids.shape[1], 100)

  def test_seeking_goes_on_where_the_other_stopped(self):
    ahead = self._stream()
    count = 0
    while ahead.position.text == 0:
      ahead.draw()
      count += 1
    # These are the first batch, the last one of the first pool, and one of the
    # second pool.
    for drawn in (0, count - 1, count + 1):
      ahead, behind = self._stream(), self._stream()
      for _ in range(drawn):
        ahead.draw()
      behind.seek(ahead.position)
      torch.testing.assert_close(behind.draw(), ahead.draw(), rtol=0, atol=0)
      self.assertEqual(behind.position, ahead.position)


if __name__ == '__main__':
  absltest.main()
