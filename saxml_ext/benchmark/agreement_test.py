from absl.testing import absltest

from saxml_ext.benchmark import agreement


class AgreementTest(absltest.TestCase):
  def test_counts_answers_and_the_tokens_before_a_difference(self):
    truth = [[1, 2, 3, 4], [5, 6], [7, 8, 9, 9]]
    found = agreement.compare_tokens(
      'x', [[1, 2, 3, 4], [5], [7, 0, 9, 9]], truth
    )
    self.assertEqual((found.equal, found.total), (1, 3))
    # All four, one of two, one of four.
    self.assertAlmostEqual(found.shared, 6 / 10)

  def test_as_many_answers_on_both_sides(self):
    with self.assertRaises(ValueError):
      agreement.compare_tokens('x', [[1]], [[1], [2]])


if __name__ == '__main__':
  absltest.main()
