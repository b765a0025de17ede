"""Tests that the recorded answers are those of the reference implementation."""

import json

from absl.testing import absltest

from bundled.summaries import reference_model
from harness.benchmarks import gptj
from harness.systems.reference import causal_lm
from saxml_ext.evaluation import dataset
from saxml_ext.evaluation import rouge
from saxml_ext.evaluation import tokenizer as tokenizer_lib


class ReferenceTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    with open(gptj.BUNDLE.reference, encoding='utf-8') as file:
      self._record = json.load(file)
    self._recorded = self._record['tokens']
    self._articles = dataset.load_articles(gptj.BUNDLE.dataset)
    self._tokenizer = tokenizer_lib.load(gptj.BUNDLE.tokenizer)
    self._prompts = dataset.encode_prompts(
      self._articles, self._tokenizer, gptj.BUNDLE.max_input_length
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
      prompts.index(gptj.BUNDLE.max_input_length),
      min(range(len(lengths)), key=lengths.__getitem__),
    }
    model = causal_lm.load(gptj.BUNDLE.model)
    for index in sorted(some):
      tokens = reference_model.generate(
        model,
        [self._prompts[index]],
        'reference',
        gptj.GPTJ.search.generation,
      )
      self.assertEqual(tokens, [self._recorded[index]], f'article {index}')

  def test_batches_keep_the_order_of_answers(self):
    # The lengths are very different, so most of the prompts are padded.
    prompts = [self._prompts[0][:40], self._prompts[1][:9], self._prompts[2]]
    model = causal_lm.load(gptj.BUNDLE.model)
    search = gptj.GPTJ.search.generation
    search |= dict(max_new_tokens=12, min_new_tokens=2)
    alone = reference_model.generate(model, prompts, 'alone', search)
    together = reference_model.generate(model, prompts, 'together', search, 3)
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
