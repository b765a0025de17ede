"""Tests the program of the engine with real LoadGen runs."""

from collections.abc import Sequence
import json
import os

from absl.testing import absltest
from absl.testing import parameterized

from harness.benchmarks import gptj
from harness.loadgen import run as run_lib
from harness.loadgen import settings
from harness.rules import rounds
from harness.systems import launch
from harness.systems.engine import engine_run
from harness.systems.testing import program_run

_PROGRAM = 'harness/systems/engine/engine_run'

# Articles with short prompts, of 80 to 106 tokens.
_SHORT = (12, 25, 38, 19)
# These settings need few and small programs, which compile within seconds.
_SMALL = (
  '--override=BATCH_SIZE=2',
  '--override=INPUT_SEQ_LEN=128',
  '--override=BUCKET_KEYS=[128]',
)


class LoadgenRunTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    directory = self.create_tempdir().full_path
    with open(gptj.BUNDLE.dataset, encoding='utf-8') as file:
      articles = json.load(file)
    with open(gptj.BUNDLE.reference, encoding='utf-8') as file:
      tokens = json.load(file)['tokens']
    self._recorded = {n: tokens[index] for n, index in enumerate(_SHORT)}
    self._dataset = os.path.join(directory, 'eval.json')
    with open(self._dataset, 'w', encoding='utf-8') as file:
      json.dump([articles[index] for index in _SHORT], file)
    self._cache = os.path.join(directory, 'jax')
    os.mkdir(self._cache)

  def _run(
    self, mode: str, scenario: str, overrides: Sequence[str] = _SMALL, **flags
  ) -> program_run.Outcome:
    run_settings = settings.RunSettings(
      benchmark=gptj.GPTJ,
      scenario=scenario,
      round='v4.0',
      sample_count=len(_SHORT),
      buffer_count=2,
      min_duration_ms=0,
      min_query_count=3,
      max_query_count=3,
      equal_issue=False,
    )
    flags = {
      'checkpoint': gptj.BUNDLE.pax,
      'dataset_path': self._dataset,
      'jax_cache_dir': self._cache,
      **flags,
    }
    directory = self.create_tempdir().full_path
    return program_run.run(
      _PROGRAM,
      mode,
      run_settings,
      directory,
      flags,
      *overrides,
    )

  def test_answers_are_the_recorded_ones(self):
    status = self._run('accuracy', rounds.OFFLINE)
    self.assertEqual(status.code, 0, status.status.failure or status.errors)
    self.assertEqual(status.stray, [])
    self.assertEqual(status.answers, self._recorded)
    self.assertNotEmpty(os.listdir(self._cache))

    status = self._run('performance', rounds.SINGLE_STREAM)
    self.assertEqual(status.code, 0, status.status.failure or status.errors)
    self.assertEqual((status.status.issued, status.status.done), (3, 3))
    self.assertEqual(status.log.problems, ())
    self.assertLen(status.times, 3)
    for times in status.times:
      self.assertEqual(times.tokens, len(self._recorded[times.index]))
      self.assertIsNone(times.first_token)

  def test_the_bundled_programs_need_no_compiling(self):
    status = self._run(
      'accuracy', rounds.OFFLINE, overrides=(), programs=gptj.BUNDLE.programs
    )
    self.assertEqual(status.code, 0, status.status.failure or status.errors)
    self.assertEqual(status.answers, self._recorded)
    # The cache would contain all programs that were compiled.
    self.assertEmpty(os.listdir(self._cache))

  def test_run_that_cannot_start_is_reported(self):
    status = self._run('accuracy', rounds.OFFLINE, checkpoint='/none')
    self.assertEqual(status.code, 1)
    self.assertRegex(status.status.failure or '', "'/none' is no")
    self.assertNotIn('Traceback', status.errors)


class SubjectTest(parameterized.TestCase):
  @parameterized.parameters(
    ({'checkpoint': ''}, '--checkpoint is not set. Pass'),
    ({'checkpoint': '/none'}, "checkpoint '/none' is not a directory"),
    # The default is a Hugging Face directory, which has the tokenizer but no
    # PAX checkpoint.
    ({}, 'model'),
    ({'params': 'Tinny'}, 'Tinny'),
    (
      {'overrides': {'BATCH_SIZE': ''}},
      '--override=BATCH_SIZE: .* Write KEY=VALUE',
    ),
    (
      {'overrides': {'BATCH_SIZE': 'a'}},
      'the value is not JSON .* Write KEY=VALUE',
    ),
    (
      {'overrides': {'BATCHSIZE': '1'}},
      'no such attribute. Did you mean BATCH_SIZE',
    ),
    ({'overrides': {'BATCH_SIZE': '"1"'}}, 'BATCH_SIZE is 32, of type int'),
    (
      {'samples': {'max_input_length': 513}},
      '--max_input_length=513 is above the limit 512',
    ),
    (
      {'samples': {'sample_count': 9999}},
      'has 512 samples, but 9999 were requested',
    ),
  )
  def test_unusable_values_are_refused(self, values, message):
    values = {'checkpoint': gptj.BUNDLE.model, **values}
    samples = run_lib.Samples(
      **{'sample_count': 2, 'benchmark': 'gptj', **values.pop('samples', {})}
    )
    engine = launch.Engine(benchmark='gptj', **values)
    with self.assertRaisesRegex((OSError, ValueError), message):
      engine_run.make(engine, engine_run.prompts(engine, samples))


if __name__ == '__main__':
  absltest.main()
