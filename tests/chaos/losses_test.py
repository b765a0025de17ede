"""Runs the short form of losses.py; `full` runs the full form."""

from absl.testing import absltest

from tests.chaos import losses


class LossesTest(absltest.TestCase):
  def test_killed_servers_lose_no_request(self):
    # There are few but long requests. Some are in flight on a server when it is
    # killed, and a slow machine has enough time to answer them.
    result = losses.run(
      self.create_tempdir().full_path, rounds=2, step_secs=1.0, load=0.25
    )
    print(result)
    self.assertEqual(result.lost, [])
    self.assertGreater(result.requests, 50)
    self.assertGreaterEqual(result.completed, result.requests)
    # An idle machine takes 2 s and 5 s, see `full`. After 25 s, the server
    # would be gone because of its silence, not because of its death.
    self.assertLess(max(result.gone_secs), 20)
    self.assertLess(max(result.replaced_secs), 60)


if __name__ == '__main__':
  absltest.main()
