"""Runs the short forms of starved.py: storage that fails."""

from absl.testing import absltest

from tests.chaos import starved
from tests.hosts import namespaces

# The failure takes longer than a lease. The limit below suits a busy machine;
# `full` has the strict limits.
_SECS = 3.0
_TRY_SECS = 15.0

# The reason why disks cannot be mounted here; '' if they can.
_obstacle = ''


class StarvedTest(absltest.TestCase):
  def check(self, trouble) -> None:
    if _obstacle and trouble in starved.MOUNTING:
      self.skipTest(_obstacle)
    directory = self.create_tempdir().full_path
    with trouble(directory) as failure:
      result = starved.run(directory, failure, _SECS, _TRY_SECS)
    print(result)
    self.assertEmpty(result.unclear)
    self.assertEqual(result.accepted, 0)
    self.assertGreater(result.refused, 0)
    self.assertTrue(result.intact)
    self.assertEqual(result.answered, result.looks)

  def test_file_size_limit(self):
    self.check(starved.limited)

  def test_full_disk(self):
    self.check(starved.full)

  def test_read_only_disk(self):
    self.check(starved.read_only)

  def test_unreachable_bucket(self):
    self.check(starved.away)


if __name__ == '__main__':
  _obstacle = namespaces.enter(starved.NAMESPACES, starved.PROBE)
  absltest.main()
