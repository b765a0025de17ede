"""Short form of losses.py; the full one is in `full`."""

from absl.testing import absltest

from tests.chaos import losses


class LossesTest(absltest.TestCase):

  def test_killed_servers_lose_no_request(self):
    result = losses.run(self.create_tempdir().full_path, rounds=3)
    print(result)
    self.assertEqual(result.lost, [])
    self.assertGreater(result.requests, 500)
    self.assertGreaterEqual(result.completed, result.requests)
    # 2 s and 5 s on a machine that has nothing else to do; see `full`.
    self.assertLess(max(result.gone_secs), 8)
    self.assertLess(max(result.replaced_secs), 20)


if __name__ == '__main__':
  absltest.main()
