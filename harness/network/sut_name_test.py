from absl.testing import absltest

from harness.network import sut_name


class SutNameTest(absltest.TestCase):
  def test_all_nodes_are_named(self):
    self.assertEqual(
      sut_name.join({'h:1': 'gptj-a', 'h:2': 'gptj-b'}),
      'Network SUT: gptj-a, gptj-b',
    )

  def test_two_nodes_of_one_name(self):
    with self.assertRaisesRegex(ValueError, "h:1 and h:2 are both named 'x'"):
      sut_name.join({'h:1': 'x', 'h:2': 'x'})

  def test_no_node(self):
    with self.assertRaisesRegex(ValueError, 'no node; give at least one'):
      sut_name.join({})


if __name__ == '__main__':
  absltest.main()
