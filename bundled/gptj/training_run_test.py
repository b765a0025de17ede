"""Tests that the bundled GPT-J learns from its prompts."""

import json
import os
import random
from unittest import mock

from absl.testing import absltest
import torch
import transformers

from bundled.gptj import training_run
from bundled.news import corpus
from bundled.summaries import batches
from bundled.summaries import summary_run
from harness.benchmarks import gptj
from saxml_ext.evaluation import tokenizer as tokenizer_lib

_HERE = os.path.dirname(__file__)
_END = 4095
_RECIPE = summary_run.Recipe(steps=6, tokens=1024)


def setUpModule():
  torch.set_num_threads(1)  # More threads are not faster.


class TrainingRunTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._bpe = tokenizer_lib.load(gptj.BUNDLE.tokenizer)

  def test_a_row_is_prompt_answer_and_end(self):
    row_of = training_run.RowMaker(self._bpe, _END)
    for story in corpus.stories('train', 20):
      ids, prompt = row_of(story, random.Random(0))
      self.assertEqual(self._bpe.decode(ids[:prompt]), story.prompt)
      self.assertEqual(self._bpe.decode(ids[prompt:-1]), ' ' + story.output)
      self.assertEqual(ids[-1], _END)
      whole = self._bpe.encode(f'{story.prompt} {story.output}').ids
      self.assertEqual(ids[:-1], whole)

  def test_loss_falls(self):
    config = transformers.GPTJConfig(
      vocab_size=_END + 1,
      n_positions=1024,
      n_embd=16,
      n_layer=1,
      n_head=2,
      rotary_dim=4,
      bos_token_id=_END,
      eos_token_id=_END,
      tie_word_embeddings=False,
    )
    with mock.patch.object(batches, '_POOL', 24):
      run = training_run.start(_RECIPE, config, self._bpe)
      first = run.advance()
      for _ in range(_RECIPE.steps - 1):
        last = run.advance()
    self.assertLess(last['loss'], first['loss'])

  def test_bundled_log_is_from_one_uninterrupted_run(self):
    with open(os.path.join(_HERE, 'train_log.jsonl'), encoding='utf-8') as file:
      rows = [json.loads(line) for line in file]
    steps = [row['step'] for row in rows]
    self.assertEqual(steps, list(range(25, steps[-1] + 1, 25)))
    for name in ('tokens', 'seconds'):
      values = [row[name] for row in rows]
      self.assertEqual(values, sorted(set(values)))


if __name__ == '__main__':
  absltest.main()
