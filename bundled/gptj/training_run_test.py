"""Tests training runs of the bundled GPT-J."""

import json
import os
from unittest import mock

from absl.testing import absltest
import torch
import transformers

from bundled.gptj import batches
from bundled.gptj import training_run
from harness.data import bundle
from saxml_ext.evaluation import tokenizer as tokenizer_lib

_HERE = os.path.dirname(__file__)
_RECIPE = training_run.Recipe(steps=6, tokens=1024)


def _run() -> training_run.Run:
  bpe = tokenizer_lib.load(bundle.tokenizer_path())
  end = bpe.get_vocab_size() - 1
  config = transformers.GPTJConfig(
    vocab_size=bpe.get_vocab_size(),
    n_positions=1024,
    n_embd=16,
    n_layer=1,
    n_head=2,
    rotary_dim=4,
    bos_token_id=end,
    eos_token_id=end,
    tie_word_embeddings=False,
  )
  return training_run.Run(_RECIPE, config, bpe)


def setUpModule():
  torch.set_num_threads(1)  # More threads are not faster.


class TrainingRunTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.enter_context(mock.patch.object(batches, '_POOL', 24))

  def test_resumed_run_goes_on_as_if_it_had_not_been_stopped(self):
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

  def test_loss_falls(self):
    run = _run()
    first = run.advance()
    for _ in range(_RECIPE.steps - 1):
      last = run.advance()
    self.assertLess(last['loss'], first['loss'])

  def test_rates_rise_stay_and_end_at_nothing(self):
    recipe = training_run.Recipe(steps=1000, tokens=1)
    rates = [recipe.rate(step) for step in range(1000)]
    self.assertEqual(rates[0], 0.01)
    self.assertEqual(set(rates[99:600]), {1.0})
    self.assertEqual(rates[600:], sorted(rates[600:], reverse=True))
    self.assertAlmostEqual(rates[-1], 1 / 400)

  def test_bundled_log_is_of_one_run_that_nobody_stopped(self):
    with open(os.path.join(_HERE, 'train_log.jsonl'), encoding='utf-8') as file:
      rows = [json.loads(line) for line in file]
    steps = [row['step'] for row in rows]
    self.assertEqual(steps, list(range(25, steps[-1] + 1, 25)))
    for name in ('tokens', 'seconds'):
      values = [row[name] for row in rows]
      self.assertEqual(values, sorted(set(values)))


if __name__ == '__main__':
  absltest.main()
