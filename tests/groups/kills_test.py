"""Short form of kills.py; the full one is `kills_bench`."""

from absl.testing import absltest

from tests.groups import kills


class KillsTest(absltest.TestCase):
  def test_lost_processes_lose_no_request(self):
    result = kills.run(
      self.create_tempdir().full_path,
      [
        kills.Loss(group=0, process=1),
        kills.Loss(group=1, process=0),
        # While its group is starting again.
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
    # Of a leader that hangs too; it would be 30 s if only its silence told.
    self.assertLess(max(result.gone_secs), 25)
    self.assertEqual(result.zeros, 0)


if __name__ == '__main__':
  absltest.main()
