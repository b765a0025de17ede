"""Storage that fails; short forms of starved.py."""

import subprocess

from absl.testing import absltest

from tests.chaos import starved


class StarvedTest(absltest.TestCase):

  def check(self, trouble) -> None:
    directory = self.create_tempdir().full_path
    try:
      with trouble(directory) as each:
        result = starved.run(directory, each)
    except subprocess.CalledProcessError as e:
      self.skipTest(f'this needs to mount: {e.stderr.decode().strip()}')
    self.assertEmpty(result.unclear)
    self.assertEqual(result.accepted, 0)
    self.assertGreater(result.refused, 0)
    self.assertTrue(result.intact)
    self.assertEqual(result.found, result.looks)
    # 2 s on a machine that has nothing else to do; see `full`.
    self.assertLess(result.recovery_secs, 10)

  def test_file_size_limit(self):
    self.check(starved.limited)

  def test_full_disk(self):
    self.check(starved.full)

  def test_read_only_disk(self):
    self.check(starved.read_only)

  def test_bucket_that_is_away(self):
    self.check(starved.away)


if __name__ == '__main__':
  absltest.main()
