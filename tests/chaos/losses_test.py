"""Short form of losses.py; the full one is in `full`."""

from absl.testing import absltest

from tests.chaos import losses


class LossesTest(absltest.TestCase):
  def test_killed_servers_lose_no_request(self):
    # Few but long requests: some are under way at a server that is killed,
    # and a slow machine has the time to answer them.
    result = losses.run(
      self.create_tempdir().full_path, rounds=2, step_secs=1.0, load=0.25
    )
    print(result)
    self.assertEqual(result.lost, [])
    self.assertGreater(result.requests, 50)
    self.assertGreaterEqual(result.completed, result.requests)
    # 2 s and 5 s on a machine that has nothing else to do, see `full`. After
    # 25 s it would be gone because of its silence, not because it is dead.
    self.assertLess(max(result.gone_secs), 20)
    self.assertLess(max(result.replaced_secs), 60)


if __name__ == '__main__':
  absltest.main()
