"""Runs the short form of evictions.py; `full` runs the full form."""

from absl.testing import absltest

from tests.chaos import evictions


class EvictionsTest(absltest.TestCase):
  def test_dead_servers_leave_the_list_and_busy_ones_stay(self):
    result = evictions.run(self.create_tempdir().full_path, 2, busy_secs=5)
    # They are gone because of their death, not because of their silence.
    self.assertLen(result.reasons, 2)
    for reason in result.reasons:
      self.assertRegex(reason, evictions.DEATH)
    self.assertFalse(result.evicted)


if __name__ == '__main__':
  absltest.main()
