"""Tests the overlap of stories."""

from absl.testing import absltest

from bundled.news import corpus
from bundled.summaries.baselines import overlap
from saxml_ext.evaluation import dataset


def _story(article: str, highlights: str) -> dataset.Article:
  return dataset.Article('', article, highlights)


class OverlapTest(absltest.TestCase):
  def test_counts_items_of_both_splits(self):
    evaluation = [
      _story('Schools in Xanby were open. It rained 7 days.', 'Xanby dry.'),
      _story('Schools in Xanby were open. It snowed.', 'Zorg snow.'),
      _story('Schools in Xanby were shut.', 'Yopton dry.'),
    ]
    training = [
      _story('Schools in Yopton were open. It snowed.', 'Yopton dry.')
    ]
    shares = {
      share.label: (share.count, share.known)
      for share in overlap.measure(evaluation, training)
    }
    self.assertEqual(shares['whole articles'], (3, 0))
    self.assertEqual(shares['whole highlights'], (3, 1))
    self.assertEqual(shares['sentences of articles'], (4, 1))
    self.assertEqual(shares['the same, names and numbers left out'], (4, 2))
    self.assertEqual(shares['words of names'], (1, 0))

  def test_evaluation_shares_no_name_with_training(self):
    shares = overlap.measure(
      corpus.stories('eval', 512), corpus.stories('train', 2000)
    )
    by_label = {share.label: share for share in shares}
    self.assertGreater(by_label['words of names'].count, 3000)
    self.assertEqual(by_label['words of names'].known, 0)
    self.assertEqual(by_label['whole articles'].known, 0)
    unseen = by_label['the same, names and numbers left out']
    self.assertLess(unseen.known, 0.8 * unseen.count)


if __name__ == '__main__':
  absltest.main()
