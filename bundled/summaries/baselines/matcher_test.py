"""Tests the matcher."""

from absl.testing import absltest

from bundled.news import corpus
from bundled.summaries.baselines import matcher
from saxml_ext.evaluation import rouge


class MatcherTest(absltest.TestCase):
  def test_fills_the_first_wording_of_what_it_recognizes(self):
    article = (
      'The church in Foo rang its bells. On Monday Bar won 3-1 against Baz in'
      ' the second leg of the cup. "I told them to enjoy it and they did,"'
      ' said coach Ann Lee.'
    )
    self.assertEqual(
      matcher.summarize(article, unseen=False),
      'Bar defeat Baz 3-1 in cup tie. Coach Ann Lee says team was told to'
      ' enjoy itself.',
    )

  def test_an_unknown_wording_is_left_out(self):
    article = (
      'The second leg of the cup on Friday ended 3-1 for Bar against Baz.'
    )
    self.assertEqual(matcher.summarize(article, unseen=False), '')
    self.assertEqual(
      matcher.summarize(article, unseen=True), 'Bar defeat Baz 3-1 in cup tie.'
    )

  def test_knows_nearly_all_sentences_of_the_generator(self):
    for split, unseen in (('train', False), ('eval', True)):
      stories = list(corpus.stories(split, 200))
      scores = rouge.score_texts(
        [matcher.summarize(story.input, unseen) for story in stories],
        [story.output for story in stories],
      )
      # The difference to 100 is the random choice of words, which no method can
      # predict.
      self.assertGreater(scores.rouge1, 80)


if __name__ == '__main__':
  absltest.main()
