"""Tests the bundled BERT's word pieces."""

import string

from absl.testing import absltest
import tokenizers

from bundled.bert import word_pieces
from harness.benchmarks import bert


class WordPiecesTest(absltest.TestCase):
  def test_learned_pieces(self):
    pieces = word_pieces.train(word_pieces.training_texts(40), size=300)
    self.assertEqual(tuple(pieces[:5]), word_pieces.SPECIAL)
    self.assertLen(set(pieces), len(pieces))
    self.assertBetween(len(pieces), 264, 300)
    self.assertContainsSubset(string.ascii_lowercase, pieces)
    self.assertContainsSubset(['##' + c for c in string.digits], pieces)

  def test_too_few_texts(self):
    with self.assertRaisesRegex(ValueError, 'Increase --passages'):
      word_pieces.train(word_pieces.training_texts(1), size=4000)

  def test_bundled_pieces_know_every_ascii_word(self):
    pieces = tokenizers.BertWordPieceTokenizer(
      bert.BUNDLE.vocabulary, lowercase=True
    )
    self.assertBetween(pieces.get_vocab_size(), 3800, 4000)
    for text in (string.printable.strip(), 'Zyxwvu 1234567890 qjq'):
      self.assertNotIn('[UNK]', pieces.encode(text).tokens)


if __name__ == '__main__':
  absltest.main()
