"""Runs the short form of losses.py; `full` runs the full form."""

from absl.testing import absltest

from tests.chaos import evictions
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
    # They are gone because of their death, not because of their silence.
    self.assertLen(result.reasons, 2)
    for reason in result.reasons:
      self.assertRegex(reason, evictions.DEATH)
    self.assertLen(result.replaced_secs, 2)


if __name__ == '__main__':
  absltest.main()
