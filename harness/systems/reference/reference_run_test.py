"""Real LoadGen runs of the reference implementation, by its program."""

import json

from absl.testing import absltest

from harness.data import bundle
from harness.loadgen import settings
from harness.rules import rounds
from harness.systems.testing import program_run

_PROGRAM = 'harness/systems/reference/reference_run'


class LoadgenRunTest(absltest.TestCase):
  def _run(
    self, mode: str, scenario: str, count: int, **flags
  ) -> program_run.Outcome:
    run_settings = settings.RunSettings(
      benchmark=rounds.GPTJ,
      scenario=scenario,
      round='v4.0',
      sample_count=count,
      buffer_count=count,
      min_duration_ms=0,
      min_query_count=3,
      max_query_count=3,
      equal_issue=False,
    )
    directory = self.create_tempdir().full_path
    return program_run.run(_PROGRAM, mode, run_settings, directory, flags)

  def test_single_stream(self):
    found = self._run('performance', rounds.SINGLE_STREAM, 2, beam_size=1)
    self.assertEqual(found.code, 0, found.errors)
    self.assertTrue(found.status.finished)
    self.assertEqual((found.status.issued, found.status.done), (3, 3))
    self.assertEqual(found.stray, [])
    self.assertEqual(found.log.problems, ())
    self.assertIn('SUT name', found.log.summary)
    self.assertLen(found.times, 3)
    for times in found.times:
      self.assertBetween(times.tokens, 29, 128)
      self.assertIsNone(times.first_token)

  def test_answers_of_a_batch_are_the_recorded_ones(self):
    found = self._run('accuracy', rounds.OFFLINE, 2, batch_size=2)
    self.assertEqual(found.code, 0, found.errors)
    with open(bundle.reference_path(), encoding='utf-8') as file:
      recorded = json.load(file)['tokens']
    self.assertEqual(found.answers, {0: recorded[0], 1: recorded[1]})

  def test_what_cannot_run_is_said(self):
    found = self._run('accuracy', rounds.OFFLINE, 2, device='cuda:999')
    self.assertEqual(found.code, 1)
    self.assertRegex(found.status.failure or '', 'cuda:999.*--device=cpu')
    self.assertNotIn('Traceback', found.errors)


if __name__ == '__main__':
  absltest.main()
