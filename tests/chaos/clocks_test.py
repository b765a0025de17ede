"""Short form of clocks.py; the full one is in `full`."""

from absl.testing import absltest

from tests.chaos import clocks

# Half of what a leader may be silent before another one takes over.
_MOST_STALLED_SECS = 1.0
_ATTEMPTS = 5


class ClocksTest(absltest.TestCase):
  def test_wall_clocks_do_not_matter(self):
    for _ in range(_ATTEMPTS):
      result = clocks.run(self.create_tempdir().full_path, 6)
      print(result)
      if not result.leaders or result.stalled_secs < _MOST_STALLED_SECS:
        break
    self.assertGreater(result.looks, 5)
    self.assertAlmostEqual(result.shown, 7200, delta=120)
    self.assertEqual(result.doubles, 0)
    self.assertEqual(result.leaders, 0)
    self.assertEqual(result.evictions, 0)


if __name__ == '__main__':
  absltest.main()
