"""Tests of the messages about a model path that no server can serve."""

from absl.testing import absltest

from saxml_ext.admin.modelet import members


class UnknownPathTest(absltest.TestCase):
  def test_known_path_has_no_explanation(self):
    self.assertEqual(members.explain_unknown('p.A', frozenset({'p.A'})), '')

  def test_empty_cell_has_no_explanation(self):
    self.assertEqual(members.explain_unknown('p.A', frozenset()), '')

  def test_similar_path_is_suggested(self):
    self.assertEqual(
      members.explain_unknown(
        'lm.params.GPTJ5', frozenset({'lm.params.GPTJ4'})
      ),
      'no joined model server can serve the model path lm.params.GPTJ5. Did'
      ' you mean lm.params.GPTJ4?',
    )

  def test_dissimilar_path_lists_the_known_ones(self):
    text = members.explain_unknown(
      'x.Y', frozenset(f'lm.P{i}' for i in range(9))
    )
    self.assertEndsWith(
      text, 'They can serve 9 others, such as lm.P0, lm.P1, lm.P2'
    )


if __name__ == '__main__':
  absltest.main()
