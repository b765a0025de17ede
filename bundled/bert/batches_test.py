"""Tests batches of training rows."""

from unittest import mock

from absl.testing import absltest
import torch

from bundled.bert import batches
from bundled.bert import rows
from harness.benchmarks import bert


def _stream(longest: int = 384) -> batches.Batches:
  return batches.Batches(
    rows.Reader(bert.BUNDLE.vocabulary, 384),
    tokens=1024,
    longest=longest,
    furthest=384,
    vocabulary=3900,
    hidden=4,
  )


class BatchesTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.enter_context(mock.patch.object(batches, '_POOL', 12))

  def test_batches_have_about_the_requested_tokens(self):
    stream = _stream(longest=160)
    for _ in range(8):
      batch = stream.draw()
      self.assertLessEqual(batch.ids.numel(), 1024)
      self.assertLessEqual(batch.ids.shape[1], 160)

  def test_marks(self):
    torch.manual_seed(0)
    batch = _stream().draw()
    index = torch.arange(len(batch.ids))
    self.assertTrue((batch.mask.sum(1) > 20).all())
    self.assertEqual(int(batch.ids[batch.mask == 0].sum()), 0)
    self.assertTrue((batch.ids[:, 0] == 2).all())  # [CLS]
    held = batch.start > 0
    self.assertTrue((batch.types[index, batch.start][held] == 1).all())
    self.assertTrue((batch.tags[batch.types == 0] == -100).all())
    begun = batch.tags[index, batch.start][held]
    self.assertTrue((begun == 1 + 2 * batch.topic[held]).all())
    self.assertTrue((batch.positions[:, 0] == 0).all())
    self.assertLess(int(batch.positions.max()), 384)

  def test_answers_are_never_hidden(self):
    torch.manual_seed(0)
    plain, hidden = _stream(), _stream()
    with mock.patch.object(hidden, '_hidden', 9999):
      changed = 0
      for _ in range(10):
        batch = hidden.draw()
        plain.draw()
        for i, row in enumerate(batch.ids):
          self.assertNotIn(9999, row[batch.start[i] : batch.end[i] + 1])
        changed += int((batch.ids == 9999).sum())
    self.assertGreater(changed, 100)

  def test_stream_continues_at_a_position(self):
    ahead = _stream()
    for _ in range(7):
      ahead.draw()
    behind = _stream()
    behind.seek(ahead.position)
    for _ in range(20):
      ours, theirs = ahead.draw(), behind.draw()
      torch.testing.assert_close(ours.start, theirs.start)
      torch.testing.assert_close(ours.tags, theirs.tags)


if __name__ == '__main__':
  absltest.main()
