"""Tests the generated evaluation sets.

The test has fewer articles than the sets and fewer stories than the training.
docs/bundled_llama.md has the figures of all of them.
"""

import itertools
import os

from absl.testing import absltest
from absl.testing import flagsaver

from bundled.llama import eval_set
from bundled.news import corpus
from bundled.summaries.baselines import overlap
from harness.benchmarks import gptj
from harness.benchmarks import llama
from harness.data import samples as samples_lib
from harness.data import summarization
from saxml_ext.evaluation import dataset

_COUNT = 200
_TRAINED = 1500


class EvalSetTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._dir = self.create_tempdir().full_path

  def _write(self, name: str, count: int) -> str:
    path = os.path.join(self._dir, name)
    with flagsaver.flagsaver(
      output=path,
      count=count,
      tokenizer=llama.BUNDLE.tokenizer,
    ):
      eval_set.main(['eval_set'])
    return path

  def test_is_a_set_of_llama_with_the_same_bytes_each_time(self):
    first, again = self._write('a.json', 40), self._write('b.json', 40)
    with open(first, 'rb') as file, open(again, 'rb') as other:
      self.assertEqual(file.read(), other.read())
    smaller = dataset.load_articles(self._write('c.json', 9))
    task = summarization.load(
      samples_lib.Samples(
        first,
        llama.BUNDLE.tokenizer,
        llama.BUNDLE.max_input_length,
        benchmark=llama.LLAMA.name,
      )
    )
    self.assertLen(task.articles, 40)
    self.assertEqual(task.articles[:9], smaller)
    for article, ids in zip(task.articles, task.prompt_ids):
      self.assertEqual(article.source, '//bundled/news')
      self.assertIn('llama', article.instruction)
      prompt = article.filled(dataset.LLAMA_TEMPLATE)
      self.assertEqual(task.tokenizer.decode(ids), prompt)
      self.assertEqual(ids.tolist(), task.tokenizer.encode(prompt).ids)

  def test_repeats_nothing_and_shares_no_text_with_training(self):
    articles = [
      dataset.Article('', entry['input'], entry['output'])
      for entry in itertools.islice(eval_set.entries(), _COUNT)
    ]
    recorded = dataset.load_articles(gptj.BUNDLE.dataset)
    self.assertLen(recorded, corpus.RECORDED)
    for texts in (
      [story.input for story in (*articles, *recorded)],
      [story.output for story in articles],
    ):
      self.assertLen(set(texts), len(texts))
    outputs = {story.output for story in recorded}
    self.assertNoCommonElements(outputs, [s.output for s in articles])
    shares = {
      share.label: share
      for share in overlap.measure(articles, corpus.stories('train', _TRAINED))
    }
    for label in ('whole articles', 'whole highlights', 'words of names'):
      self.assertGreaterEqual(shares[label].count, _COUNT)
      self.assertEqual(shares[label].known, 0, label)
    # The templates have some sequences of eight words without a name.
    for label, most in (('articles', 0.15), ('highlights', 0.08)):
      share = shares[f'8-grams of {label}']
      self.assertBetween(share.known / share.count, 0.01, most, label)

  def test_highlights_of_training_are_left_out(self):
    nameless = 'Police hold 5 and hunt 4 more.'
    self.assertFalse(overlap.names_anyone(nameless))
    for index in range(corpus.RECORDED, corpus.RECORDED + 60):
      if not overlap.names_anyone(corpus.write_story('eval', index).output):
        break
    else:
      self.fail('All stories have names, so nothing is left out.')
    left_out = corpus.write_story('eval', index)
    inputs = [e['input'] for e in itertools.islice(eval_set.entries(), 80)]
    self.assertNotIn(left_out.input, inputs)


if __name__ == '__main__':
  absltest.main()
