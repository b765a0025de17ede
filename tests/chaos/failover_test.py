"""Runs the short form of failover.py; `full` runs the full form."""

import os

from absl.testing import absltest

from tests.chaos import failover


class FailoverTest(absltest.TestCase):
  def test_standbys_take_over_and_traffic_goes_on(self):
    directory = self.create_tempdir().full_path
    os.environ['SAX_ROOT'] = directory + '/root'
    result = failover.run(directory, 2)
    self.assertEmpty(result.failures)
    self.assertGreater(result.answers, 20)
    self.assertEqual((result.stopped, result.refused), (1, 1))
    self.assertEqual(result.lost, 0)
    self.assertLen(result.takeover_secs, 2)


if __name__ == '__main__':
  absltest.main()
