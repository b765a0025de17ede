"""Tests that training reproduces the small model in the repository."""

import pathlib

from absl.testing import absltest
import sentencepiece

from bundled.gptj import vocabulary
from bundled.news import corpus
from saxml_ext.params import lm_cloud


class VocabularyTest(absltest.TestCase):
  def test_shipped_model_matches_training(self):
    shipped = pathlib.Path(lm_cloud.SMALL_VOCABULARY).read_bytes()
    self.assertEqual(vocabulary.train(), shipped)

  def test_words_of_the_corpus_have_few_pieces(self):
    processor = sentencepiece.SentencePieceProcessor()
    processor.Load(lm_cloud.SMALL_VOCABULARY)
    self.assertEqual(processor.vocab_size(), vocabulary.SIZE)
    for story in corpus.stories('eval', 20):
      text = ' '.join(story.input.split())
      ids = processor.encode(text)
      self.assertEqual(processor.decode(ids), text)
      self.assertLess(len(ids), len(text) / 2)


if __name__ == '__main__':
  absltest.main()
