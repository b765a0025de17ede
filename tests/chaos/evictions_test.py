"""Runs the short form of evictions.py; `full` runs the full form."""

from absl.testing import absltest

from tests.chaos import evictions


class EvictionsTest(absltest.TestCase):
  def test_dead_servers_leave_the_list_and_busy_ones_stay(self):
    result = evictions.run(self.create_tempdir().full_path, 2, busy_secs=5)
    # An idle machine takes 2 s, see `full`. After 25 s, the server would be
    # gone because of its silence, not because of its death.
    self.assertLess(max(result.gone_secs), 20)
    self.assertFalse(result.evicted)


if __name__ == '__main__':
  absltest.main()
