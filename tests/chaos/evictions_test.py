"""Short form of evictions.py; the full one is in `full`."""

from absl.testing import absltest

from tests.chaos import evictions


class EvictionsTest(absltest.TestCase):
  def test_dead_servers_leave_the_list_and_busy_ones_stay(self):
    result = evictions.run(self.create_tempdir().full_path, 2, busy_secs=5)
    # 2 s on a machine that has nothing else to do, see `full`. After 25 s it
    # would be gone because of its silence, not because it is dead.
    self.assertLess(max(result.gone_secs), 20)
    self.assertFalse(result.evicted)


if __name__ == '__main__':
  absltest.main()
