"""Short form of clocks.py; the full one is in `full`."""

from absl.testing import absltest

from tests.chaos import clocks


class ClocksTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    if not clocks.library():
      self.skipTest(
          'libfaketime is not installed: apt-get install libfaketime, or name '
          'libfaketimeMT.so.1 in SAX_LIBFAKETIME'
      )

  def test_wall_clocks_do_not_matter(self):
    result = clocks.run(self.create_tempdir().full_path, 10)
    self.assertGreater(result.looks, 5)
    self.assertAlmostEqual(result.shown, 7200, delta=60)
    self.assertEqual(result.doubles, 0)
    self.assertEqual(result.leaders, 0)
    self.assertEqual(result.evictions, 0)


if __name__ == '__main__':
  absltest.main()
