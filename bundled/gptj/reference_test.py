"""Tests that the recorded answers are those of the reference implementation."""

import json

from absl.testing import absltest

from bundled.summaries import reference_model
from harness.data import bundle
from harness.systems.reference import causal_lm
from saxml_ext.evaluation import dataset
from saxml_ext.evaluation import rouge
from saxml_ext.evaluation import tokenizer as tokenizer_lib


class ReferenceTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    with open(bundle.reference_path(), encoding='utf-8') as file:
      self._record = json.load(file)
    self._recorded = self._record['tokens']
    self._articles = dataset.load_articles(bundle.eval_path())
    self._tokenizer = tokenizer_lib.load(bundle.tokenizer_path())
    self._prompts = dataset.encode_prompts(
      self._articles, self._tokenizer, bundle.MAX_INPUT_LENGTH
    )

  def _lengths(self):
    return list(map(len, self._recorded))

  def test_answers_match_the_recorded_ones(self):
    """Compares answers that end by themselves or at 128 tokens."""
    lengths = self._lengths()
    prompts = list(map(len, self._prompts))
    some = {
      0,
      next(i for i, n in enumerate(lengths) if n == 128),
      prompts.index(bundle.MAX_INPUT_LENGTH),
      min(range(len(lengths)), key=lengths.__getitem__),
    }
    model = causal_lm.load(bundle.model_dir())
    for index in sorted(some):
      tokens = reference_model.generate(
        model, [self._prompts[index]], 'reference'
      )
      self.assertEqual(tokens, [self._recorded[index]], f'article {index}')

  def test_batches_keep_the_order_of_answers(self):
    # The lengths are very different, so most of the prompts are padded.
    prompts = [self._prompts[0][:40], self._prompts[1][:9], self._prompts[2]]
    model = causal_lm.load(bundle.model_dir())
    changes = dict(max_new_tokens=12, min_new_tokens=2)
    alone = reference_model.generate(model, prompts, 'alone', **changes)
    together = reference_model.generate(
      model, prompts, 'together', 3, **changes
    )
    self.assertEqual(together, alone)
    self.assertLessEqual(max(map(len, alone)), 12)

  def test_both_limits_of_the_search_bind(self):
    lengths = self._lengths()
    self.assertLen(lengths, 512)
    self.assertEqual(max(lengths), self._record['generation']['max_new_tokens'])
    self.assertGreaterEqual(min(lengths), 30)
    self.assertGreater(lengths.count(128), 20)
    highlights = [
      len(self._tokenizer.encode(' ' + article.output).ids)
      for article in self._articles
    ]
    # Many expected highlights are shorter than 30 tokens, but answers must not
    # be.
    self.assertGreater(sum(length < 30 for length in highlights), 50)

  def test_recorded_figures_match_the_recorded_answers(self):
    scores = rouge.score_tokens(
      dict(enumerate(self._recorded)),
      [article.output for article in self._articles],
      self._tokenizer,
    )
    for name in ('rouge1', 'rouge2', 'rougeL', 'gen_len', 'gen_num'):
      self.assertEqual(getattr(scores, name), self._record[name])


if __name__ == '__main__':
  absltest.main()
