"""Tests of the article generator."""

import json
import os
import re

from absl.testing import absltest

from harness.bundled import corpus
from harness.bundled import events
from saxml_ext.common import dataset
from saxml_ext.common import rouge

_HERE = os.path.dirname(__file__)


class CorpusTest(absltest.TestCase):

  def test_bundled_articles_are_what_the_generator_writes(self):
    bundled = dataset.load_articles(os.path.join(_HERE, 'eval.json'))
    self.assertLen(bundled, 512)
    self.assertSequenceEqual(bundled, list(corpus.stories('eval', 512)))

  def test_training_and_evaluation_share_no_text(self):
    training = list(corpus.stories('train', 5000))
    held_out = list(corpus.stories('eval', 512))
    for field in ('input', 'output'):
      self.assertEmpty(
          {getattr(s, field) for s in training}
          & {getattr(s, field) for s in held_out}
      )

  def test_every_template_of_every_event_fills(self):
    begun = set()
    for story in corpus.stories('any', 3000):
      self.assertNotRegex(story.input + story.output, r'[{}\[\]|]')
      begun.add(story.output.split(' says ')[0].split('. ')[-1])
    roles = {event.role for event in events.EVENTS.values()}
    for role in roles:
      self.assertTrue(any(role in text.lower() for text in begun), role)

  def test_lengths_in_tokens(self):
    bpe = dataset.load_tokenizer(os.path.join(_HERE, 'model/tokenizer.json'))
    stories = list(corpus.stories('eval', 512))
    articles = [len(bpe.encode(s.input).ids) for s in stories]
    highlights = [len(bpe.encode(' ' + s.output).ids) for s in stories]
    self.assertBetween(sum(articles) / 512, 120, 200)
    self.assertLess(max(articles), 360)
    self.assertGreaterEqual(min(highlights), 30)
    self.assertLessEqual(max(highlights), 128)

  def test_first_sentences_are_a_poor_summary(self):
    stories = list(corpus.stories('eval', 200))
    lead = [' '.join(re.split(r'(?<=[.!?"]) ', s.input)[:3]) for s in stories]
    scores = rouge.score_texts(lead, [s.output for s in stories])
    self.assertLess(scores.rouge1, 35)

  def test_highlights_tell_facts_of_the_article(self):
    for story in corpus.stories('eval', 200):
      for number in re.findall(r'\b\d{2,}\b', story.output.replace(',000', '')):
        self.assertIn(number, story.input)

  def test_reference_answers_cover_the_articles(self):
    with open(os.path.join(_HERE, 'reference.json'), encoding='utf-8') as file:
      record = json.load(file)
    self.assertLen(record['tokens'], 512)
    self.assertGreaterEqual(min(map(len, record['tokens'])), 30)
    bpe = dataset.load_tokenizer(os.path.join(_HERE, 'model/tokenizer.json'))
    scores = rouge.score_tokens(
        dict(enumerate(record['tokens'])),
        [s.output for s in corpus.stories('eval', 512)],
        bpe,
    )
    for name in ('rouge1', 'rouge2', 'rougeL', 'gen_len'):
      self.assertEqual(getattr(scores, name), record[name])


if __name__ == '__main__':
  absltest.main()
