"""Tests the article generator."""

import re

from absl.testing import absltest

from bundled.news import corpus
from bundled.news import events
from bundled.news import lexicon
from bundled.news import writing
from harness.benchmarks import gptj
from saxml_ext.evaluation import dataset
from saxml_ext.evaluation import rouge
from saxml_ext.evaluation import tokenizer as tokenizer_lib

# The longest prompt that the benchmark's serving params read, in tokens.
_MAX_INPUT_LENGTH = 512


def _beginning(template: str) -> str:
  """Returns the text of a template before its first slot or choice."""
  return re.split(r'[{\[]', template)[0]


class CorpusTest(absltest.TestCase):
  def test_bundled_articles_match_the_generator(self):
    bundled = dataset.load_articles(gptj.BUNDLE.dataset)
    self.assertLen(bundled, 512)
    self.assertSequenceEqual(bundled, list(corpus.stories('eval', 512)))

  def test_training_and_evaluation_share_no_text(self):
    training = list(corpus.stories('train', 1500))
    held_out = list(corpus.stories('eval', 512))
    self.assertEmpty({s.input for s in training} & {s.input for s in held_out})
    # The shortest highlights contain no name, so some are equal by chance.
    known = {s.output for s in training}
    shared = [s.output for s in held_out if s.output in known]
    self.assertLess(len(shared), 0.01 * len(held_out))
    self.assertLess(max(map(len, shared), default=0), 60)

  def test_unseen_wordings_are_in_the_evaluation_alone(self):
    unseen = [
      *lexicon.OPENERS.unseen,
      *lexicon.ASIDES.unseen,
      *lexicon.TURNS.unseen,
      *(text for e in events.EVENTS.values() for text in e.unseen),
    ]
    # Templates that begin with a slot have no text to compare. Enough others
    # remain.
    begun = [b for b in map(_beginning, unseen) if len(b) > 8]
    self.assertGreater(len(begun), 40)
    training = ' '.join(s.input for s in corpus.stories('train', 1500))
    held_out = ' '.join(s.input for s in corpus.stories('eval', 512))
    self.assertEmpty([text for text in begun if text in training])
    self.assertEmpty([text for text in begun if text not in held_out])

  def test_every_template_of_every_event_fills(self):
    begun = set()
    for story in corpus.stories('any', 800):
      self.assertNotRegex(story.input + story.output, r'[{}\[\]|]')
      begun.update(writing.sentences(story.output))
    roles = {event.role for event in events.EVENTS.values()}
    for role in roles:
      self.assertTrue(any(role in text.lower() for text in begun), role)

  def test_every_fact_belongs_to_a_highlight_and_has_an_unseen_wording(self):
    for kind, event in events.EVENTS.items():
      self.assertLen(event.told_by, len(event.highlights), kind)
      self.assertLen(event.unseen, len(event.facts), kind)
      needed = {fact for facts in event.told_by for fact in facts}
      self.assertEqual(needed, set(range(len(event.facts))), kind)

  def test_lengths_in_tokens(self):
    bpe = tokenizer_lib.load(gptj.BUNDLE.tokenizer)
    stories = list(corpus.stories('eval', 512))
    prompts = [len(bpe.encode(s.prompt).ids) for s in stories]
    highlights = [len(bpe.encode(' ' + s.output).ids) for s in stories]
    # All prompts fit into the model's 1024 positions with 128 tokens of answer.
    self.assertLess(max(prompts), 1024 - 128)
    self.assertBetween(sum(p > _MAX_INPUT_LENGTH for p in prompts), 10, 40)
    # Some answers reach each limit of the reference's search.
    self.assertGreater(sum(h < 30 for h in highlights), 50)
    self.assertGreater(sum(h > 128 for h in highlights), 25)
    self.assertLessEqual(min(highlights), 10)
    self.assertGreaterEqual(max(highlights), 160)

  def test_first_sentences_are_a_poor_summary(self):
    stories = list(corpus.stories('eval', 100))
    lead = [' '.join(writing.sentences(s.input)[:3]) for s in stories]
    scores = rouge.score_texts(lead, [s.output for s in stories])
    self.assertLess(scores.rouge1, 35)

  def test_highlights_have_facts_of_the_article(self):
    for story in corpus.stories('eval', 200):
      for number in re.findall(r'\b\d{2,}\b', story.output.replace(',000', '')):
        self.assertIn(number, story.input)

  def test_joined_sentences_are_the_article(self):
    for story in corpus.stories('eval', 50):
      parts = writing.sentences(story.input)
      self.assertEqual(' '.join(parts), story.input)
      for part in parts:
        self.assertRegex(part, r'^[A-Z0-9"].*[.]"?$')


if __name__ == '__main__':
  absltest.main()
