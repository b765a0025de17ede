"""Tests of joining a job of jax.distributed from several processes."""

from absl.testing import absltest

from saxml_ext.common import net
from saxml_ext.common.testing import modules

_PROGRAM = 'saxml_ext.groups.testing.member_program'
_TIMEOUT = 600


class DistributedTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.coordinator = f'--coordinator=127.0.0.1:{net.pick_free_port()}'

  def _start(self, *flags: str):
    return modules.start(self, _PROGRAM, self.coordinator, *flags)

  def test_followers_find_their_leader(self):
    leader, follower = (self._start(f'--number={i}') for i in range(2))
    output, logged = follower.communicate(timeout=_TIMEOUT)
    self.assertEqual(output, 'a:1 epoch a 0\n', logged)
    output, logged = leader.communicate(timeout=_TIMEOUT)
    self.assertEqual(output, 'told 0\n', logged)
    self.assertEqual((leader.returncode, follower.returncode), (0, 0))

  def test_programs_are_kept_for_the_next_start(self):
    cache_dir = self.create_tempdir().full_path
    for hits in range(2):
      self.coordinator = f'--coordinator=127.0.0.1:{net.pick_free_port()}'
      processes = [
        self._start(f'--number={i}', f'--cache_dir={cache_dir}')
        for i in range(2)
      ]
      for process in processes:
        output, logged = process.communicate(timeout=_TIMEOUT)
        self.assertEndsWith(output, f' {hits}\n', logged)

  def test_missing_processes_are_named(self):
    for number in range(2):
      process = self._start(f'--number={number}', '--patience=1')
      output, logged = process.communicate(timeout=_TIMEOUT)
      self.assertRegex(
        output,
        rf'^process {number} of 2 did not find the others at 127.0.0.1:\d+'
        ' within 1 s. Check',
      )
      self.assertEqual(process.returncode, 1)
      self.assertNotIn('Check failure', logged)


if __name__ == '__main__':
  absltest.main()
