import dataclasses
import json
import pathlib
import shutil

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from harness.benchmarks import bert
from harness.loadgen import compliance
from harness.loadgen import loadgen_log
from harness.rules import rounds
from harness.submission.testing import jobs

_TEST = jobs.Job(benchmark=bert.BERT, round='v5.1', target_qps=100)


def _run(scenario: str, score: float, **values) -> loadgen_log.RunLog:
  keys = {
    rounds.OFFLINE: 'result_samples_per_second',
    rounds.SERVER: 'result_completed_samples_per_sec',
    rounds.SINGLE_STREAM: 'early_stopping_latency_ss',
    rounds.MULTI_STREAM: 'early_stopping_latency_ms',
  }
  known = {'result_validity': 'VALID', keys[scenario]: score}
  return loadgen_log.RunLog('', '', known | values, ())


class Test01RunTest(absltest.TestCase):
  """Tests TEST01 with real runs of LoadGen."""

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.root = pathlib.Path(absltest.get_default_test_tmpdir(), 'test01')
    shutil.rmtree(cls.root, ignore_errors=True)
    jobs.make(cls.root / 'job', _TEST)
    jobs.make_compliance(cls.root / 'job', _TEST, 'TEST01')
    cls.accuracy = cls.root / 'job' / 'accuracy' / 'mlperf_log_accuracy.json'
    cls.logged = (
      cls.root / 'job' / 'compliance' / 'TEST01' / 'mlperf_log_accuracy.json'
    )

  def test_loadgen_logs_answers_of_a_performance_run(self):
    log = loadgen_log.read(str(self.logged.parent))
    self.assertTrue(log.valid)
    self.assertEqual(log.values['effective_accuracy_log_sampling_target'], 4096)
    self.assertGreater(len(compliance.answers(self.logged)), 4000)

  def test_answers_of_the_same_model(self):
    verdict = compliance.verify_accuracy(self.accuracy, self.logged)
    self.assertTrue(verdict.passed)
    self.assertIn('num_acc_log_entries = 20\n', verdict.text)
    self.assertIn('num_perf_log_data_mismatch = 0\n', verdict.text)
    self.assertEndsWith(verdict.text, 'TEST PASS\n')

  def test_answers_of_another_model(self):
    other = dataclasses.replace(_TEST)
    jobs.make(self.root / 'other', other)
    jobs.make_compliance(self.root / 'other', other, 'TEST01', shift=7)
    verdict = compliance.verify_accuracy(
      self.accuracy,
      self.root / 'other' / 'compliance' / 'TEST01' / self.logged.name,
    )
    self.assertFalse(verdict.passed)
    self.assertEndsWith(verdict.text, 'TEST FAIL\n')

  def test_baseline_is_what_the_test_logged_of_the_accuracy_run(self):
    few = self.create_tempfile(
      content=json.dumps(
        [{'qsl_idx': 3, 'data': ''}, {'qsl_idx': 5, 'data': ''}]
      )
    ).full_path
    path = pathlib.Path(self.create_tempdir().full_path, 'baseline.json')
    count = compliance.write_baseline(self.accuracy, pathlib.Path(few), path)
    self.assertEqual(count, 2)
    kept = dict(compliance.answers(path))
    whole = dict(compliance.answers(self.accuracy))
    self.assertEqual(kept, {3: whole[3], 5: whole[5]})


class Test06Test(parameterized.TestCase):
  """Tests the verdicts on logged tokens."""

  def verify(self, *answers, scenario=rounds.SERVER, ends=(7, 9)):
    entries = [
      {
        'qsl_idx': i,
        'data': np.array(tokens, np.int32).tobytes().hex().upper(),
        'token_count': count,
        **(
          {}
          if scenario == rounds.OFFLINE  # As in LoadGen's logs.
          else {'token_data': np.array(first, np.int32).tobytes().hex()}
        ),
      }
      for i, (tokens, first, count) in enumerate(answers)
    ]
    path = self.create_tempfile(content=json.dumps(entries)).full_path
    return compliance.verify_tokens(pathlib.Path(path), scenario, ends)

  def test_lines_are_those_of_the_official_program(self):
    good = [1, 2, 7], [1], 3
    self.assertEqual(
      self.verify(good, ([1], [1], 1)).text,
      'First token check pass: True\nEOS check pass: True\n'
      'Sample length check pass: True\nTEST06 verification complete\n',
    )
    self.assertEqual(
      self.verify(good, ([1, 7, 7], [2], 2)).text,
      'First token check pass: False\nEOS check pass: False\n'
      'Sample length check pass: False\nTEST06 verification failed\n',
    )
    offline = self.verify(([1], [], 1), scenario=rounds.OFFLINE)
    self.assertTrue(offline.passed)
    self.assertStartsWith(offline.text, 'First token check pass: Skipped\n')

  @parameterized.parameters(
    ([1, 2, 9], [1], 3, True),
    ([7, 1], [7], 2, True),  # An end id that ends nothing.
    ([1, 7, 9], [1], 3, False),  # Two different ones.
    ([7, 7], [7], 2, False),
    ([1, 2], [1, 2], 2, True),
    ([1, 2], [1, 3], 2, False),
    ([1, 2], [], 2, False),  # No first token was reported.
    ([1, 2], [1, 2, 3], 2, False),
    ([1, 2], [1], 3, False),
  )
  def test_each_rule(self, tokens, first, count, passed):
    self.assertEqual(self.verify((tokens, first, count)).passed, passed)

  def test_nothing_passes_without_answers(self):
    self.assertFalse(self.verify().passed)

  def test_other_logs_are_refused(self):
    path = pathlib.Path(
      self.create_tempfile(content='[{"data": ""}]').full_path
    )
    with self.assertRaisesRegex(ValueError, 'not an accuracy log.*token_data'):
      compliance.verify_tokens(path, rounds.SERVER, (7,))
    entry = {'data': '010203', 'token_data': '', 'token_count': 1}
    path.write_text(json.dumps([entry]), 'utf-8')
    with self.assertRaisesRegex(ValueError, 'an answer that is not int32'):
      compliance.verify_tokens(path, rounds.SERVER, (7,))

  def test_settings(self):
    # Source: compliance/TEST06/audit.config of mlcommons/inference.
    self.assertEqual(
      compliance.audit_config('TEST06').splitlines(),
      [
        '*.*.mode = 2',
        '*.*.accuracy_log_rng_seed = 720381539243781796',
        '*.*.accuracy_log_sampling_target = 100',
        '*.*.min_query_count = 100',
        '*.*.min_duration = 0',
        '*.*.sample_concatenate_permutation = 0',
      ],
    )
    self.assertEqual(compliance.attributes('TEST06', 'v6.1'), {})


class ComplianceTest(parameterized.TestCase):
  def log(self, *answers) -> pathlib.Path:
    text = json.dumps([{'qsl_idx': i, 'data': data} for i, data in answers])
    return pathlib.Path(self.create_tempfile(content=text).full_path)

  def test_first_values_decide(self):
    accuracy = self.log((0, '0000803F00000000'), (1, '00000040'))
    same = self.log((0, '0000803F11111111'), (0, '0000803F'))
    self.assertTrue(compliance.verify_accuracy(accuracy, same).passed)
    other = self.log((1, '00000041'))
    self.assertFalse(compliance.verify_accuracy(accuracy, other).passed)

  def test_nothing_in_common_fails(self):
    verdict = compliance.verify_accuracy(
      self.log((0, '00')), self.log((7, '00'))
    )
    self.assertFalse(verdict.passed)
    self.assertIn('num_missing_qsl_idxs = 1', verdict.text)

  def test_other_file_is_no_log(self):
    path = self.log((0, '00'))
    path.write_text('{', 'utf-8')
    with self.assertRaisesRegex(ValueError, 'is not an accuracy log'):
      compliance.verify_accuracy(path, path)

  @parameterized.parameters(
    ('TEST01', rounds.OFFLINE, 100, 91, True),
    ('TEST01', rounds.OFFLINE, 100, 89, False),
    ('TEST01', rounds.OFFLINE, 100, 111, False),
    ('TEST01', rounds.SINGLE_STREAM, 1_000_000, 1_090_000, True),
    ('TEST01', rounds.SINGLE_STREAM, 1_000_000, 1_110_000, False),
    ('TEST01', rounds.SINGLE_STREAM, 100_000, 119_000, True),
    ('TEST01', rounds.MULTI_STREAM, 1_500_000, 1_790_000, True),
    ('TEST05', rounds.OFFLINE, 100, 96, True),
    ('TEST05', rounds.OFFLINE, 100, 94, False),
    ('TEST05', rounds.OFFLINE, 100, 200, True),
    ('TEST05', rounds.SINGLE_STREAM, 1_000_000, 500_000, True),
    ('TEST05', rounds.SINGLE_STREAM, 1_000_000, 1_060_000, False),
  )
  def test_speed(self, test, scenario, reference, score, passed):
    verdict = compliance.verify_performance(
      test, scenario, _run(scenario, reference), _run(scenario, score)
    )
    self.assertEqual(verdict.passed, passed)
    self.assertEqual('TEST PASS' in verdict.text, passed)
    self.assertStartsWith(verdict.text, f'Reference score = {reference}.0\n')

  def test_server_has_one_bound(self):
    runs = [
      _run(rounds.SERVER, 100, effective_target_latency_ns=bound)
      for bound in (130, 140)
    ]
    verdict = compliance.verify_performance('TEST01', rounds.SERVER, *runs)
    self.assertFalse(verdict.passed)

  def test_runs_must_be_valid(self):
    good = _run(rounds.OFFLINE, 1)
    bad = _run(rounds.OFFLINE, 1, result_validity='INVALID')
    for pair in ((good, bad), (bad, good)):
      self.assertFalse(
        compliance.verify_performance('TEST01', rounds.OFFLINE, *pair).passed
      )
    bare = loadgen_log.RunLog('', '', {'result_validity': 'VALID'}, ())
    self.assertIn(
      'no result_samples_per_second',
      compliance.verify_performance('TEST01', rounds.OFFLINE, bare, bare).text,
    )

  def test_seeds_of_test05(self):
    seeds = compliance.attributes('TEST05', 'v4.1')
    self.assertEqual(seeds['qsl_rng_seed'], 16799458546791641818)
    self.assertNotEqual(seeds['qsl_rng_seed'], rounds.ROUNDS['v4.1'].qsl_seed)
    self.assertEqual(compliance.attributes('TEST01', 'v4.1'), {})
    with self.assertRaisesRegex(ValueError, 'v5.0 has no TEST05'):
      compliance.attributes('TEST05', 'v5.0')
    with self.assertRaisesRegex(ValueError, 'TEST04 is unknown'):
      compliance.audit_config('TEST04')


if __name__ == '__main__':
  absltest.main()
