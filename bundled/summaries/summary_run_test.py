"""Tests training runs on stories."""

import os
from unittest import mock

from absl.testing import absltest
import torch
from torch import nn

from bundled.summaries import batches
from bundled.summaries import summary_run

_RECIPE = summary_run.Recipe(steps=6, tokens=1024)
_VOCABULARY = 256
_WIDTH = 16


def _row(story, rng):
  """Makes a row of a story's bytes."""
  del rng
  prompt = story.input.encode()[:100]
  return batches.Row([*prompt, *story.output.encode()[:50], 0], len(prompt))


class _Model(nn.Module):
  """A model of pairs: the next byte depends on one byte only."""

  def __init__(self):
    super().__init__()
    self.embedding = nn.Embedding(_VOCABULARY, _WIDTH)
    self.blocks = nn.Sequential(nn.Linear(_WIDTH, _WIDTH), nn.Tanh())
    self.lm_head = nn.Linear(_WIDTH, _VOCABULARY)

  def hidden(self, ids):
    return self.blocks(self.embedding(ids))


def _run() -> summary_run.Run:
  torch.manual_seed(0)
  model = _Model()
  stream = batches.Batches(
    _row, 0, tokens=1024, longest=200, article_weight=0.3
  )
  return summary_run.Run(_RECIPE, model, model.blocks, model.hidden, stream)


class SummaryRunTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    torch.set_num_threads(1)  # More threads are not faster.
    self.enter_context(mock.patch.object(batches, '_POOL', 24))

  def test_resumed_run_equals_an_undisturbed_one(self):
    path = os.path.join(self.create_tempdir().full_path, 'state.pt')
    ahead = _run()
    ahead.advance()
    ahead.advance()
    ahead.save(path)
    want = [ahead.advance(), ahead.advance()]
    behind = _run()
    behind.restore(path)
    self.assertEqual(behind.step, 2)
    self.assertEqual([behind.advance(), behind.advance()], want)
    self.assertEqual(behind.tokens, ahead.tokens)
    self.assertEqual(behind.progress, ahead.progress)
    for ours, theirs in zip(
      behind.model.parameters(), ahead.model.parameters()
    ):
      torch.testing.assert_close(ours, theirs, rtol=0, atol=0)

  def test_rates_rise_stay_and_end_at_zero(self):
    recipe = summary_run.Recipe(steps=1000, tokens=1)
    rates = [recipe.rate(step) for step in range(1000)]
    self.assertEqual(rates[0], 0.01)
    self.assertEqual(set(rates[99:600]), {1.0})
    self.assertEqual(rates[600:], sorted(rates[600:], reverse=True))
    self.assertAlmostEqual(rates[-1], 1 / 400)


if __name__ == '__main__':
  absltest.main()
