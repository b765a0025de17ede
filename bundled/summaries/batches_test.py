"""Tests batches of training stories."""

from unittest import mock

from absl.testing import absltest
import torch

from bundled.news import corpus
from bundled.summaries import batches

_POOL = 24
_END = 0


def _row(story, rng):
  """Makes a row of a story's bytes; a random one of two ends ends it."""
  prompt, answer = (text.encode() for text in (story.input, story.output))
  return batches.Row([*prompt, *answer, rng.choice((1, 2))], len(prompt))


def _stream(longest=4000):
  return batches.Batches(
    _row, _END, tokens=8192, longest=longest, article_weight=0.5
  )


class BatchesTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.enter_context(mock.patch.object(batches, '_POOL', _POOL))

  def test_a_row_is_prompt_answer_end_and_padding(self):
    stories = {
      s.input.encode() + s.output.encode(): len(s.input.encode())
      for s in corpus.stories('train', _POOL)
    }
    ends = set()
    stream = _stream()
    while stream.position.text == 0:
      ids, weights = stream.draw()
      self.assertEqual(ids.shape, weights.shape)
      self.assertLessEqual(ids.numel(), 8192)
      for row, weight in zip(ids, weights):
        length = int((weight > 0).sum())
        ends.add(int(row[length - 1]))
        text = bytes(row[: length - 1].tolist())
        self.assertIn(text, stories, 'not a training story')
        prompt = stories.pop(text)
        self.assertEqual(set(weight[:prompt].tolist()), {0.5})
        self.assertEqual(set(weight[prompt:length].tolist()), {1.0})
        self.assertTrue((row[length:] == _END).all())
        self.assertTrue((weight[length:] == 0).all())
      if not stories:
        break
    self.assertEmpty(stories)
    self.assertEqual(ends, {1, 2})

  def test_long_rows_lose_their_end(self):
    stream = _stream(longest=100)
    for _ in range(3):
      ids, _ = stream.draw()
      self.assertLessEqual(ids.shape[1], 100)

  def test_seek_continues_another_stream(self):
    ahead = _stream()
    count = 0
    while ahead.position.text == 0:
      ahead.draw()
      count += 1
    # These are the first batch, the last one of the first pool, and one of the
    # second pool.
    for drawn in (0, count - 1, count + 1):
      ahead, behind = _stream(), _stream()
      for _ in range(drawn):
        ahead.draw()
      behind.seek(ahead.position)
      torch.testing.assert_close(behind.draw(), ahead.draw(), rtol=0, atol=0)
      self.assertEqual(behind.position, ahead.position)


if __name__ == '__main__':
  absltest.main()
