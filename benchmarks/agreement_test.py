from absl.testing import absltest

from benchmarks import agreement


class AgreementTest(absltest.TestCase):
  def test_counts_answers_and_the_tokens_before_a_difference(self):
    truth = [[1, 2, 3, 4], [5, 6], [7, 8, 9, 9]]
    tokens = agreement.compare_tokens(
      'x', [[1, 2, 3, 4], [5], [7, 0, 9, 9]], truth
    )
    self.assertEqual((tokens.equal, tokens.total), (1, 3))
    # The shared prefixes have four, one and one token.
    self.assertAlmostEqual(tokens.shared, 6 / 10)

  def test_different_numbers_of_answers_are_an_error(self):
    with self.assertRaises(ValueError):
      agreement.compare_tokens('x', [[1]], [[1], [2]])

  def test_lists_are_compared_rank_by_rank(self):
    truth = {'tokens': [[1, 2], [1, 3], [4, 4]], 'scores': [-1.0, -1.5, -2.0]}
    swapped = {
      'tokens': [[1, 2], [4, 4], [1, 3]],
      'scores': [-1.0, -1.5, -2.25],
    }
    result = agreement.compare_n_best('x', swapped, truth)
    self.assertEqual((result.equal, result.in_list, result.total), (1, 3, 3))
    self.assertAlmostEqual(result.score_gap, 0.25)
    same = agreement.compare_n_best('x', truth, truth)
    self.assertEqual((same.equal, same.score_gap), (3, 0))


if __name__ == '__main__':
  absltest.main()
