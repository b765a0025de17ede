"""Runs the short form of kills.py; `full_kills` runs the full form."""

from absl.testing import absltest

from tests.groups import kills


class KillsTest(absltest.TestCase):
  def test_lost_processes_lose_no_request(self):
    result = kills.run(
      self.create_tempdir().full_path,
      [
        kills.Loss(group=0, process=1),
        kills.Loss(group=1, process=0),
        # This loss happens while its group is starting again.
        kills.Loss(group=1, process=1, delay=2.0, serving=False),
        kills.Loss(group=0, process=1, stopped=True),
        kills.Loss(group=1, process=0, stopped=True),
      ],
    )
    print(result)
    self.assertEqual(result.lost, [])
    self.assertGreater(result.requests, 50)
    self.assertGreaterEqual(result.completed, result.requests)
    self.assertEqual(sum(result.kills.values()), 5)
    # Its group reports a leader that hangs before the admin server counts it as
    # silent.
    self.assertRegex(result.reasons[-1], r'host \S+ \(process 0\) is lost')
    self.assertEqual(result.zeros, 0)


if __name__ == '__main__':
  absltest.main()
