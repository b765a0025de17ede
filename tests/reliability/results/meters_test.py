"""Tests the meters on this process and on invented samples."""

import os
import subprocess
import sys

from absl.testing import absltest

from tests.reliability.results import meters


def _reading(at: float, memory: float) -> meters.Reading:
  return meters.Reading(at, memory, descriptors=3, threads=1, cpu=0.0)


class MetersTest(absltest.TestCase):
  def test_process_is_measured(self):
    before = meters.read(os.getpid())
    held = bytearray(os.urandom(1)) * 30_000_000
    with open(os.devnull, encoding='ascii'):
      after = meters.read(os.getpid())
    self.assertGreater(after.memory, before.memory + 25)
    self.assertEqual(after.descriptors, before.descriptors + 1)
    self.assertGreaterEqual(after.threads, 1)
    self.assertGreater(after.cpu, 0)
    self.assertLen(held, 30_000_000)

  def test_ended_process_has_no_reading(self):
    child = subprocess.Popen([sys.executable, '-c', ''])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    self.assertIsNone(meters.read(child.pid))  # The child is a zombie.
    child.wait()
    self.assertIsNone(meters.read(child.pid))
    with self.assertRaisesRegex(RuntimeError, 'has ended'):
      meters.memory(child.pid)

  def test_slope_of_memory_is_fitted(self):
    self.assertEqual(meters.slope_per_minute([]), 0)
    self.assertEqual(meters.slope_per_minute([_reading(0, 100)]), 0)
    grows = [_reading(t, 100 + t / 30) for t in range(0, 120, 10)]
    self.assertAlmostEqual(meters.slope_per_minute(grows), 2.0)
    flat = [_reading(t, 100 + t % 2) for t in range(121)]
    self.assertAlmostEqual(meters.slope_per_minute(flat), 0.0)

  def test_load_of_the_machine_is_measured(self):
    with meters.Load() as load:
      sum(range(3_000_000))
    self.assertBetween(load.busy, 0, 1)
    self.assertIn('% busy', load.describe())


if __name__ == '__main__':
  absltest.main()
