import pathlib
import shutil

from absl.testing import absltest
from absl.testing import parameterized

from harness.benchmarks import bert
from harness.benchmarks import gptj
from harness.benchmarks import llama
from harness.rules import rounds
from harness.submission.checks import log_checks
from harness.submission.testing import jobs

_GPTJ_NS = 20_000_000_000  # gptj.*.Server in every mlperf.conf.
_BERT_NS = 130_000_000  # bert.*.Server in every mlperf.conf.


class FigureTest(absltest.TestCase):
  """Tests the figures that are read from accuracy.txt."""

  def test_accuracy_of_a_run(self):
    text = "{'rouge1': 41.5, 'gen_len': 12}\nhash=12ab\n"
    self.assertEqual(log_checks.figure(text, 'rouge1'), 41.5)
    self.assertEqual(log_checks.figure(text, 'gen_len'), 12)

  def test_line_of_bert(self):
    text = '{"exact_match": 83.5, "f1": 90.9}\n'
    self.assertEqual(log_checks.figure(text, 'f1'), 90.9)

  def test_text_without_scores_is_refused(self):
    for text in ('', 'hash=12\n', "{'rouge1': np.float64(1.0)}\n", '{1, 2}\n'):
      self.assertIsNone(log_checks.figure(text, 'rouge1'))


class LatencyBoundTest(parameterized.TestCase):
  """Tests the check of a Server run's latency bound in LoadGen's log."""

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.made = pathlib.Path(absltest.get_default_test_tmpdir(), 'bound')
    shutil.rmtree(cls.made, ignore_errors=True)
    for benchmark in (gptj.GPTJ, bert.BERT):
      job = jobs.Job(
        benchmark=benchmark,
        scenario=rounds.SERVER,
        target_qps=400,
        target_latency_ms=100,
      )
      jobs.make(cls.made / benchmark.name, job)

  @parameterized.parameters(
    (gptj.GPTJ, _GPTJ_NS, None),
    (gptj.GPTJ, _GPTJ_NS + 1_000_000, 'was 20001 ms, .* at most 20000 ms'),
    (bert.BERT, _BERT_NS, None),
    (bert.BERT, _BERT_NS + 1_000_000, 'was 131 ms, .* at most 130 ms'),
  )
  def test_bound(self, benchmark, bound_ns, pattern):
    job = pathlib.Path(self.create_tempdir().full_path, 'job')
    shutil.copytree(self.made / benchmark.name, job)
    run = job / 'performance' / 'run_1'
    jobs.change(run, effective_target_latency_ns=bound_ns)
    (result,) = jobs.load(job)
    submission = jobs.submission([result], round='v4.0', division='open')
    problems = list(
      log_checks.settings(submission, result, result.performance, 'this')
    )
    if pattern is None:
      self.assertEqual(problems, [])
    else:
      (problem,) = problems
      self.assertRegex(problem, f'this: target_latency {pattern}')


class TokenLimitsTest(parameterized.TestCase):
  """Tests the check of Llama's limits in the log of a Server run."""

  @parameterized.parameters(
    ('first_token_99.00_percentile_latency_ns', 1999, None),
    ('first_token_99.00_percentile_latency_ns', 2000, 'TTFT. is 2000.000 ms'),
    ('time_per_output_token_99.00_percentile_ns', 99, None),
    ('time_per_output_token_99.00_percentile_ns', 100, 'TPOT. is 100.000 ms'),
  )
  def test_server(self, key, milliseconds, pattern):
    job = pathlib.Path(self.create_tempdir().full_path, 'job')
    jobs.make(
      job,
      jobs.Job(
        benchmark=llama.LLAMA,
        scenario=rounds.SERVER,
        round='v6.1',
        target_qps=400,
      ),
    )
    run = job / 'performance' / 'run_1'
    jobs.change(run, **jobs.CALM)
    jobs.change(run, **{f'result_{key}': milliseconds * 1_000_000})
    (result,) = jobs.load(job)
    problems = list(
      log_checks.settings(
        jobs.submission([result]), result, result.performance, 'this'
      )
    )
    if pattern is None:
      self.assertEqual(problems, [])
    else:
      (problem,) = problems
      self.assertRegex(problem, f'this: the 99th percentile .*{pattern}')


if __name__ == '__main__':
  absltest.main()
