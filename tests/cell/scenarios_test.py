"""Runs several scenarios against one cell and checks the stored results."""

import os
import subprocess

from absl.testing import absltest

from harness.benchmarks import gptj
from harness.loadgen import loadgen_log
from harness.results import entry
from harness.results import store
from harness.rules import rounds
from serve import programs

_SAMPLES = 6
_SCENARIOS = (rounds.SERVER, rounds.SINGLE_STREAM, rounds.MULTI_STREAM)


class ScenariosTest(absltest.TestCase):
  def _run(self, *words: str) -> tuple[int, str]:
    """Returns the exit code of the program and its output."""
    command = programs.command('harness/main', {'cache_dir': self._cache})
    done = subprocess.run(
      [*command.argv, *words],
      env=dict(command.env),
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
      check=False,
    )
    return done.returncode, done.stdout

  def setUp(self):
    super().setUp()
    self._cache = self.create_tempdir().full_path
    self._store = store.Store(os.path.join(self._cache, 'results'))

  def test_every_scenario_runs_against_one_cell(self):
    words = (
      f'--scenario={",".join(_SCENARIOS)}',
      '--execution-mode=test',
      f'--max-examples={_SAMPLES}',
      '--warm-up=1-2',
      # The trial of Server is enough. Each stream would send 16 queries more.
      '--target-latency-ms=20000',
    )
    code, output = self._run(*words)
    self.assertEqual(code, 0, output)
    self.assertEqual(output.count('starting a cell'), 1)
    stored = {
      result.entry.scenario: result for result in self._store.all().entries
    }
    self.assertCountEqual(stored, _SCENARIOS)
    for scenario, result in stored.items():
      self._assert_complete(scenario, result.entry, result.directory)
    # The second run shows the stored results and starts nothing.
    code, again = self._run(*words)
    self.assertEqual(code, 0, again)
    self.assertNotIn('starting a cell', again)
    for result in stored.values():
      self.assertIn(f'result {result.id} of {result.entry.began}', again)

  def _assert_complete(
    self, scenario: str, kept: entry.Entry, directory: str
  ) -> None:
    self.assertEqual(kept.round, gptj.GPTJ.last_round)
    self.assertEqual(kept.system, 'cell')
    self.assertEqual(kept.accuracy.identical, _SAMPLES)
    self.assertEqual(kept.accuracy.metrics['gen_num'], _SAMPLES)
    self.assertEqual(kept.accuracy.metrics, kept.accuracy.reference)
    self.assertGreater(kept.performance.value, 0)
    self.assertGreater(kept.performance.tokens_per_second, 0)
    queries = 5
    if scenario == rounds.MULTI_STREAM:
      queries *= rounds.MULTI_STREAM_SAMPLES
    self.assertEqual(kept.performance.samples, queries)
    times = os.path.join(directory, 'timeline', '{}.csv')
    self.assertLen(
      loadgen_log.read_timeline(times.format('performance')), queries
    )
    # MultiStream fills its last query with samples that were already sent.
    self.assertEqual(
      {
        event.index
        for event in loadgen_log.read_timeline(times.format('accuracy'))
      },
      set(range(_SAMPLES)),
    )
    for role in ('dataset', 'tokenizer', 'reference', 'checkpoint'):
      self.assertRegex(kept.hashes[role], '^[0-9a-f]{64}$')

  def test_system_in_the_same_process_is_measured(self):
    code, output = self._run(
      '--system=engine', '--execution-mode=test', '--max-examples=4'
    )
    self.assertEqual(code, 0, output)
    self.assertNotIn('starting a cell', output)
    self.assertIn('token for token; 4 of 4 are: PASSED', output)


if __name__ == '__main__':
  absltest.main()
