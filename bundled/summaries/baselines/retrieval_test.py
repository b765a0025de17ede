"""Tests retrieval of similar stories."""

from absl.testing import absltest

from bundled.summaries.baselines import retrieval


class RetrievalTest(absltest.TestCase):
  def test_rare_words_count_for_more(self):
    texts = [
      'the fire at the mill was out by noon',
      'the storm at the harbour was the worst',
      'the storm and the fire at the harbour',
      'the vote of the town was close',
      'the vote was a storm of the town',
    ]
    queries = [
      'a close vote, the vote of a town',
      'the mill and the fire at noon',
    ]
    self.assertEqual(retrieval.nearest(queries, texts), [3, 0])

  def test_a_text_is_nearest_to_itself(self):
    texts = [f'{a} met {b} in {c}' for a in 'pqr' for b in 'st' for c in 'uvw']
    self.assertEqual(retrieval.nearest(texts, texts), list(range(len(texts))))

  def test_order_of_words_counts(self):
    texts = ['dog bites man', 'man bites dog', 'dog bites cat', 'man bites cat']
    self.assertEqual(retrieval.nearest(['man bites dog'], texts), [1])


if __name__ == '__main__':
  absltest.main()
