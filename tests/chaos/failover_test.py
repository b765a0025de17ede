"""Short form of failover.py; the full one is in `full`."""

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
    # 3 s on a machine that has nothing else to do; see `full`.
    self.assertLess(max(result.takeover_secs), 30)


if __name__ == '__main__':
  absltest.main()
