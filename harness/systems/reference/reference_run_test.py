"""Tests the program of the reference with real LoadGen runs."""

import json
import os
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import torch

from harness.benchmarks import gptj
from harness.loadgen import run as run_lib
from harness.loadgen import settings
from harness.loadgen import system
from harness.rules import rounds
from harness.systems import launch
from harness.systems.reference import reference_run
from harness.systems.testing import program_run
from harness.systems.testing import replies

_PROGRAM = 'harness/systems/reference/reference_run'


class LoadgenRunTest(absltest.TestCase):
  def _run(
    self, mode: str, scenario: str, count: int, **flags
  ) -> program_run.Outcome:
    run_settings = settings.RunSettings(
      benchmark=gptj.GPTJ,
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
    status = self._run('performance', rounds.SINGLE_STREAM, 2, beam_size=1)
    self.assertEqual(status.code, 0, status.errors)
    self.assertTrue(status.status.finished)
    self.assertEqual((status.status.issued, status.status.done), (3, 3))
    self.assertEqual(status.stray, [])
    self.assertEqual(status.log.problems, ())
    self.assertIn('SUT name', status.log.summary)
    self.assertLen(status.times, 3)
    for times in status.times:
      self.assertBetween(times.tokens, 29, 128)
      self.assertIsNone(times.first_token)

  def test_answers_of_a_batch_are_the_recorded_ones(self):
    status = self._run('accuracy', rounds.OFFLINE, 2, batch_size=2)
    self.assertEqual(status.code, 0, status.errors)
    with open(gptj.BUNDLE.reference, encoding='utf-8') as file:
      recorded = json.load(file)['tokens']
    self.assertEqual(status.answers, {0: recorded[0], 1: recorded[1]})

  def test_run_that_cannot_start_is_reported(self):
    status = self._run('accuracy', rounds.OFFLINE, 2, device='cuda:999')
    self.assertEqual(status.code, 1)
    self.assertRegex(status.status.failure or '', 'cuda:999.*--device=cpu')
    self.assertNotIn('Traceback', status.errors)


def setUpModule():
  torch.set_num_threads(1)  # More threads only wait for each other.


def _make(samples=None, **values) -> system.System:
  """Makes the system with its inputs."""
  selection = run_lib.Samples(
    **{'sample_count': 2, 'benchmark': 'gptj', **(samples or {})}
  )
  reference = launch.Reference(benchmark='gptj', **values)
  inputs = reference_run.prompts(reference, selection)
  return reference_run.make(reference, selection.max_input_length, inputs)


class SubjectTest(parameterized.TestCase):
  def test_answers_the_bundled_articles(self):
    made = _make({'sample_count': 1}, precision='fp32')
    reply = replies.Reply()
    made.answer(0, reply)
    answer = reply.answer()  # The reference reports no first token.
    made.close()
    with open(gptj.BUNDLE.reference, encoding='utf-8') as file:
      recorded = json.load(file)['tokens'][0]
    self.assertEqual(answer.data.tolist(), recorded)
    self.assertEqual(answer.data.dtype, 'int64')
    self.assertEqual(answer.tokens, len(recorded))

  @parameterized.parameters(
    ({'device': 'gpu'}, '--device=gpu is unknown'),
    ({'precision': 'fp8'}, '--precision=fp8 is unknown. Available: float'),
    (
      {'samples': {'max_input_length': 897}},
      '--max_input_length=897 is above the limit 896',
    ),
    ({'checkpoint': '/none'}, '/none is not a Hugging Face directory'),
    ({'samples': {'dataset_path': '/none'}}, '/none'),
    (
      {'samples': {'sample_count': 0}, 'batch_size': 512, 'beam_size': 10**7},
      'and cache [0-9.]+ GiB.*a smaller --batch_size or --beam_size',
    ),
  )
  def test_unusable_values_are_refused(self, values, message):
    with self.assertRaisesRegex((OSError, ValueError), message):
      _make(**values)


class ChoicesTest(parameterized.TestCase):
  def test_cpu(self):
    self.assertEqual(reference_run.find_device('cpu').type, 'cpu')

  def test_a_gpu_that_is_not_there(self):
    with self.assertRaisesRegex(
      ValueError, '--device=cuda:999: PyTorch .* finds .* Use --device=cpu'
    ):
      reference_run.find_device('cuda:999')

  @parameterized.parameters('', 'gpu', 'cuda:', 'cuda:x', 'cpu:0', 'tpu')
  def test_other_devices(self, name):
    with self.assertRaisesRegex(ValueError, 'is unknown. Use cpu, cuda'):
      reference_run.find_device(name)

  def _beams(self, beams, variable):
    with mock.patch.dict(os.environ, {'GPTJ_BEAM_SIZE': variable}):
      return reference_run.beam_size(beams, gptj.GPTJ)

  def test_beams_come_from_the_flag_or_the_variable(self):
    self.assertEqual(self._beams(2, '3'), 2)
    self.assertEqual(self._beams(None, '3'), 3)
    self.assertEqual(self._beams(None, ''), 4)

  @parameterized.parameters('0', '-1', 'four', '4.0')
  def test_a_variable_that_is_no_number(self, text):
    with self.assertRaisesRegex(ValueError, f"GPTJ_BEAM_SIZE is '{text}'. Set"):
      self._beams(None, text)


if __name__ == '__main__':
  absltest.main()
