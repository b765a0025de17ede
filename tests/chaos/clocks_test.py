"""Runs the short form of clocks.py; `full` runs the full form."""

from absl.testing import absltest

from tests.chaos import clocks

# A standby takes over after the leader was silent for twice this time.
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
