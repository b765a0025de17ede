"""Tests training runs of the bundled BERT."""

import os
from unittest import mock

from absl.testing import absltest
import torch

from bundled.bert import batches
from bundled.bert import training_run
from harness.benchmarks import bert

_RECIPE = training_run.Recipe(steps=20, tokens=1024)


def _run() -> training_run.Run:
  with open(bert.BUNDLE.vocabulary, encoding='utf-8') as file:
    config = training_run.bundled_config(sum(1 for _ in file))
  config.hidden_size = 16
  config.num_hidden_layers = 2
  config.num_attention_heads = 2
  config.intermediate_size = 32
  return training_run.Run(_RECIPE, config, bert.BUNDLE.vocabulary)


def setUpModule():
  torch.set_num_threads(1)  # More threads are not faster.


class TrainingRunTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
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
    for ours, theirs in zip(
      behind.model.parameters(), ahead.model.parameters()
    ):
      torch.testing.assert_close(ours, theirs, rtol=0, atol=0)

  def test_loss_falls(self):
    run = _run()
    first = run.advance()
    for _ in range(_RECIPE.steps - 1):
      last = run.advance()
    self.assertLess(last['tag_loss'], first['tag_loss'] - 0.1)

  def test_rates_rise_and_end_at_zero(self):
    recipe = training_run.Recipe(steps=1000, tokens=1)
    rates = [recipe.rate(step) for step in range(1000)]
    top = rates.index(max(rates))
    self.assertBetween(top, 50, 65)
    self.assertLess(rates[0], 0.02)
    self.assertEqual(rates[:top], sorted(rates[:top]))
    self.assertEqual(rates[top:], sorted(rates[top:], reverse=True))
    self.assertAlmostEqual(rates[-1], 1 / 1000)

  def test_first_heads_look_at_neighbours(self):
    with open(bert.BUNDLE.vocabulary, encoding='utf-8') as file:
      config = training_run.bundled_config(sum(1 for _ in file))
    run = training_run.Run(_RECIPE, config, bert.BUNDLE.vocabulary)
    ids = torch.randint(5, config.vocab_size, (1, 100))
    with torch.inference_mode():
      seen = run.model.bert(ids, output_attentions=True).attentions[0][0]
    for head, offset in enumerate((-1, 1, -2, 2)):
      offsets = seen[head, 5:95].argmax(-1) - torch.arange(5, 95)
      self.assertEqual(offsets.mode().values.item(), offset)

  def test_short_rows_come_first(self):
    recipe = training_run.Recipe(steps=10, tokens=1, short_share=0.4)
    short = [recipe.is_short(step) for step in range(10)]
    self.assertEqual(short, [True] * 4 + [False] * 6)


if __name__ == '__main__':
  absltest.main()
