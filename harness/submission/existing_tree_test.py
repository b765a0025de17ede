import dataclasses
import json
import pathlib
import shutil
import unittest
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from harness.benchmarks import bert
from harness.benchmarks import gptj
from harness.benchmarks import llama
from harness.results import figures
from harness.rules import rounds
from harness.submission import existing_tree
from harness.submission import plan
from harness.submission import tree
from harness.submission.checks import submission_checks
from harness.submission.testing import jobs

_STREAM = jobs.Job(
  scenario=rounds.SINGLE_STREAM,
  round='v5.0',
  samples=gptj.GPTJ.full_set,
  target_latency_ms=1.0,
  figures=jobs.HIGH[gptj.GPTJ],
)
_OFFLINE = jobs.Job(
  round='v5.0',
  samples=gptj.GPTJ.full_set,
  target_qps=100,
  figures=jobs.HIGH[gptj.GPTJ],
)
_BERT = jobs.Job(
  benchmark=bert.BERT,
  round='v6.1',
  samples=bert.BERT.full_set,
  target_qps=100,
  figures=jobs.HIGH[bert.BERT],
)
_BERT_STREAM = jobs.Job(
  benchmark=bert.BERT,
  scenario=rounds.SINGLE_STREAM,
  round='v6.1',
  samples=bert.BERT.full_set,
  target_latency_ms=1.0,
  answer_secs=0.0005,
  figures=jobs.HIGH[bert.BERT],
)
_LLAMA = jobs.Job(
  benchmark=llama.LLAMA,
  round='v6.1',
  samples=llama.LLAMA.full_set,
  target_qps=100,
  figures=jobs.HIGH[llama.LLAMA],
)
_LLAMA_INTERACTIVE = dataclasses.replace(
  _LLAMA, scenario=rounds.INTERACTIVE, target_qps=3000
)
_RUNS = {
  'gptj': (_OFFLINE, _STREAM),
  'bert': (_BERT, _BERT_STREAM),
  'llama': (_LLAMA, _LLAMA_INTERACTIVE),
}
_DATACENTER = {'llama': 'datacenter'}


@unittest.skipUnless(shutil.which('git'), 'There is no git here.')
class ExistingTreeTest(parameterized.TestCase):
  """Tests closed trees of real logs with one edit each."""

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.made = pathlib.Path(absltest.get_default_test_tmpdir(), 'trees')
    shutil.rmtree(cls.made, ignore_errors=True)
    cls.jobs = {}
    # Every test copies a tree, so it has only one source.
    sources = {'harness/offline.py': b'# One source.'}
    cls.enterClassContext(
      mock.patch.object(plan, 'source_files', lambda unused_commit: sources)
    )
    for name, runs in _RUNS.items():
      folders = []
      for run in runs:
        folder = cls.made / 'jobs' / name / run.scenario
        jobs.make(folder, run)
        log = folder / 'performance' / 'run_1'
        values = {
          'effective_min_duration_ms': rounds.MIN_DURATION_MS
        } | jobs.CALM
        jobs.last(log, 601, **values)
        if run.benchmark is bert.BERT:
          jobs.make_compliance(folder, run, 'TEST01')
          # On a busy machine, two runs differ in speed.
          for name_of_log in ('detail', 'summary'):
            file = f'mlperf_log_{name_of_log}.txt'
            shutil.copy(log / file, folder / 'compliance' / 'TEST01' / file)
        elif run.benchmark is llama.LLAMA:
          jobs.make_compliance(folder, run, 'TEST06')
        folders.append(folder)
      cls.jobs[name] = jobs.load(*folders)
      submission = jobs.submission(
        cls.jobs[name],
        division='closed',
        category=_DATACENTER.get(name, 'edge'),
      )
      tree.write(plan.files(submission), cls.made / name)

  def setUp(self):
    super().setUp()
    self.root = pathlib.Path(self.create_tempdir().full_path)

  def copy(self, name: str) -> pathlib.Path:
    """Copies a tree, and returns the folder of the submitter."""
    shutil.copytree(self.made / name, self.root, dirs_exist_ok=True)
    return self.root / 'closed' / 'Example'

  def problems(self, results=(), **values) -> list[str]:
    values = {'round_name': None, 'submitter': None} | values
    submissions, texts = existing_tree.read(self.root, **values)
    for submission in submissions:
      texts += existing_tree.problems(self.root, submission, results)
    return texts

  def assert_problem(self, pattern: str, **values) -> None:
    texts = self.problems(**values)
    self.assertRegex('\n'.join(texts), pattern)
    for problem in texts:
      self.assertIn(str(self.root), problem)

  @parameterized.parameters('gptj', 'bert', 'llama')
  def test_tree_of_this_program_has_no_problem(self, name):
    self.copy(name)
    self.assertEqual(self.problems(results=self.jobs[name]), [])

  def closed_llama(self, *results) -> list[str]:
    """Returns the problems of a closed submission of results."""
    return submission_checks.problems(
      jobs.submission(results, division='closed', category='datacenter')
    )

  def test_closed_results_of_llama(self):
    offline, interactive = self.jobs['llama']
    self.assertEqual(self.closed_llama(offline, interactive), [])
    (problem,) = self.closed_llama(offline)
    self.assertIn('llama3.1-8b lacks Server or Interactive. The', problem)
    parameters = json.loads(json.dumps(offline.entry.parameters))
    parameters['system']['overrides'] = {'TEMPERATURE': '0.5'}
    entry = dataclasses.replace(offline.entry, parameters=parameters)
    (problem,) = self.closed_llama(
      dataclasses.replace(offline, entry=entry), interactive
    )
    self.assertIn('sampled its answers, but closed requires greedy', problem)

  def test_answers_of_llama_in_another_type(self):
    offline, interactive = self.jobs['llama']
    folder = self.root / 'job'
    shutil.copytree(offline.directory, folder)
    log = folder / 'accuracy' / 'mlperf_log_accuracy.json'
    text = log.read_text('utf-8')
    log.write_text(text.replace('"token_count" : 4', '"token_count" : 2'))
    (problem,) = self.closed_llama(*jobs.load(folder), interactive)
    self.assertRegex(
      problem, '13368 answers, .* do not have four bytes per tok'
    )

  def test_unequal_issue_of_llama_is_a_problem(self):
    offline, interactive = self.jobs['llama']
    folder = self.root / 'job'
    shutil.copytree(offline.directory, folder)
    key = 'effective_sample_concatenate_permutation'
    jobs.change(folder / 'performance' / 'run_1', **{key: False})
    (problem,) = self.closed_llama(*jobs.load(folder), interactive)
    self.assertIn('Samples were not issued equally often', problem)

  def test_edited_early_stopping_estimate_is_a_problem(self):
    run = self.copy('gptj') / 'results/box/gptj-99/SingleStream/performance'
    jobs.edit(run / 'run_1', early_stopping_latency_ss=10)
    self.assert_problem('SingleStream: .*shows early_stopping_latency_ss as')
    jobs.change(run / 'run_1', early_stopping_latency_ss=10)
    self.assert_problem('SingleStream: .*early_stopping_latency_ss is only 10.')

  @parameterized.parameters('INVALID', None)
  def test_invalid_runs_of_the_newest_round(self, verdict):
    home = self.copy('bert')
    run = home / 'results/box/bert-99/Offline/performance/run_1'
    jobs.change(run, result_validity=verdict)
    self.assert_problem(
      f'Offline: LoadGen reports the performance run as {verdict}.'
    )

  @parameterized.parameters(
    (figures.FIRST_TOKEN[0], 501, r'first token \(TTFT\) is 501.000 ms, .*500'),
    (figures.FIRST_TOKEN[0], 500, r'first token \(TTFT\) is 500.000 ms, .*500'),
    (figures.FIRST_TOKEN[0], 499, None),
    (figures.PER_TOKEN[0], 31, r'token \(TPOT\) is 31.000 ms, but .*30 ms'),
    (figures.PER_TOKEN[0], 30, r'token \(TPOT\) is 30.000 ms, but .*30 ms'),
    (figures.PER_TOKEN[0], 29, None),
    ('requested_server_ttft_latency', 2000, 'limit of the .* was 2000 ms'),
    ('requested_server_tpot_latency', 100, 'limit of the .* was 100 ms'),
  )
  def test_limits_of_interactive(self, key, milliseconds, pattern):
    run = self.copy('llama') / 'results/box/llama3.1-8b/Interactive/performance'
    keys = [key.format(percentile) for percentile in ('99.00', '99.90')]
    # No first token is later than the answer.
    late = {
      f'result_{percentile}_latency_ns': 10**12
      for percentile in ('99.00_percentile', '99.90_percentile', 'max')
    }
    jobs.change(
      run / 'run_1', **late, **dict.fromkeys(keys, milliseconds * 1_000_000)
    )
    if pattern is None:
      self.assertEqual(self.problems(), [])
    else:
      self.assert_problem(f'Interactive: .*{pattern}')

  @parameterized.parameters(
    ('Offline', 'INVALID'), ('Interactive', 'INVALID'), ('Interactive', None)
  )
  def test_invalid_runs_of_llama(self, scenario, verdict):
    home = self.copy('llama')
    run = home / f'results/box/llama3.1-8b/{scenario}/performance/run_1'
    jobs.change(run, result_validity=verdict)
    self.assert_problem(f'{scenario}: LoadGen reports .* run as {verdict}')

  @parameterized.parameters(
    ('Offline', 'result_tokens_per_second', 9e6),
    ('Interactive', 'result_completed_tokens_per_second', 9e6),
    ('Interactive', figures.FIRST_TOKEN[0].format('99.00'), 7),
    ('Interactive', figures.PER_TOKEN[0].format('99.00'), 7),
    ('Interactive', 'requested_server_tpot_latency', 7),
  )
  def test_edited_figures_of_tokens_are_a_problem(self, scenario, key, value):
    home = self.copy('llama')
    run = home / f'results/box/llama3.1-8b/{scenario}/performance/run_1'
    jobs.edit(run, **{key: value})
    self.assert_problem(f'{scenario}: .*shows {key} as .*, but .* has {value}')
    if key.startswith('requested'):
      return
    jobs.change(run, **{key: value})
    self.assert_problem(f'{scenario}: .*contradicts itself: .*{key} is')

  def test_missing_latencies_of_tokens_are_a_problem(self):
    home = self.copy('llama')
    run = home / 'results/box/llama3.1-8b/Offline/performance/run_1'
    jobs.edit(run, requested_use_token_latencies=False)
    self.assert_problem('Offline: LoadGen did not measure the latencies of tok')

  @parameterized.product(
    digest=('0' * 64, 'f' * 64, 'deadbeef', ''),
    folder=(('gptj', 'gptj-99'), ('llama', 'llama3.1-8b')),
  )
  def test_invalid_hash_is_a_problem(self, digest, folder):
    tree_name, model = folder
    home = self.copy(tree_name)
    score = home / f'results/box/{model}/Offline/accuracy/accuracy.txt'
    lines = score.read_text('utf-8').splitlines()
    lines[-1] = f'hash={digest}' if digest else ''
    score.write_text('\n'.join(lines), 'utf-8')
    self.assert_problem('accuracy.txt has no line "hash=" with the SHA-256')

  def test_rouge_lsum_is_for_closed_submissions(self):
    home = self.copy('llama')
    for score in home.glob('results/*/*/*/accuracy/accuracy.txt'):
      text = score.read_text('utf-8').replace("'rougeLsum': 35.793, ", '')
      score.write_text(text, 'utf-8')
    self.assert_problem('accuracy.txt lacks rougeLsum in the format')
    home.parent.rename(self.root / 'open')
    system = self.root / 'open/Example/systems/box.json'
    record = json.loads(system.read_text('utf-8'))
    system.write_text(json.dumps(record | {'division': 'open'}), 'utf-8')
    self.assertEqual(self.problems(), [])

  def test_foreign_logs_are_a_problem(self):
    home = self.copy('gptj')
    folder = home / 'results/box/gptj-99/Offline'
    score = folder / 'accuracy/accuracy.txt'
    text = score.read_text('utf-8').replace('hash=', 'hash=a')[:-2]
    score.write_text(f'{text}\n', 'utf-8')
    jobs.last(folder / 'performance/run_1', 602)
    self.assertEqual(self.problems(), [])
    texts = self.problems(results=self.jobs['gptj'])
    self.assertLen(texts, 3)
    self.assertIn(f'{score} differs from', texts[0])
    self.assertIn('run_1/mlperf_log_detail.txt differs from', texts[1])

  @parameterized.parameters(
    (
      'measurements/box/gptj-99/Offline/README.md',
      'README.md is missing, but v5.0',
    ),
    ('measurements/box/gptj-99/Offline/user.conf', 'Offline has no user.conf'),
    (
      'measurements/box/gptj-99/Offline',
      'Offline.* lacks input_data_types, retr',
    ),
    ('results/box/gptj-99/Offline/accuracy', 'Offline has no accuracy run'),
    (
      'results/box/gptj-99/Offline/performance',
      'performance run is None, but none',
    ),
    (
      'results/box/gptj-99/Offline',
      'gptj-99 lacks Offline. The category edge',
    ),
    ('code', 'code/gptj-99 has no code'),
    ('systems/box.json', 'systems/box.json: No such file'),
    (
      'results/box/gptj-99/Offline/accuracy/mlperf_log_summary.txt',
      'mlperf_log_summary.txt: No such file',
    ),
  )
  def test_missing_files_are_a_problem(self, path, pattern):
    target = self.copy('gptj') / path
    shutil.rmtree(target) if target.is_dir() else target.unlink()
    self.assert_problem(pattern)

  def test_a_description_of_another_folder(self):
    path = self.copy('gptj') / 'systems/box.json'
    record = json.loads(path.read_text('utf-8'))
    path.write_text(json.dumps(record | {'division': 'open', 'cooling': ''}))
    self.assert_problem("division is 'open', but the folder is 'closed'")
    self.assert_problem('box.json: The system description lacks cooling')

  def test_failed_compliance_is_a_problem(self):
    base = self.copy('bert') / 'results/box/bert-99/Offline/TEST01'
    (base / 'verify_accuracy.txt').write_text('TEST FAIL\n')
    (base / 'verify_performance.txt').write_text('TEST FAIL\n')
    self.assert_problem(
      'verify_performance.txt is missing or does not contain "TEST PASS"'
    )
    self.assert_problem(
      'TEST01: The answers differ from those of the accuracy run'
    )
    shutil.rmtree(base)
    self.assert_problem('Offline has no TEST01. Closed results of bert-99')

  @parameterized.parameters(
    ('Offline', 'EOS check pass: True', 'EOS check pass: False'),
    ('Offline', 'Sample length check pass: True', ''),
    ('Interactive', 'token check pass: True', 'token check pass: Skipped'),
  )
  def test_failed_token_check_is_a_problem(self, scenario, line, other):
    base = self.copy('llama') / f'results/box/llama3.1-8b/{scenario}/TEST06'
    path = base / 'verify_accuracy.txt'
    text = path.read_text('utf-8')
    self.assertIn(line, text)
    path.write_text(text.replace(line, other), 'utf-8')
    self.assert_problem(f'{scenario}, TEST06 failed: ')
    shutil.rmtree(base)
    self.assert_problem(f'{scenario} has no TEST06. Closed results of llama3.1')

  def test_unsupported_trees_are_refused(self):
    self.assertRegex(
      self.problems()[0], 'has no results of any submitter. A tree'
    )
    home = self.copy('gptj')
    self.assertRegex(self.problems(submitter='Me')[0], 'no results of Me')
    (home / 'results/box/gptj-99').rename(home / 'results/box/llama2-70b-99')
    self.assert_problem(
      'is Offline of llama2-70b-99, but this program checks only'
    )

  def test_models_of_the_open_division(self):
    submission = jobs.submission(
      self.jobs['gptj'], division='open', model_name='mine'
    )
    tree.write(plan.files(submission), self.root)
    self.assertEqual(self.problems(), [])
    self.assert_problem(
      'qsl_rng_seed was 6023615788873153749', round_name='v4.1'
    )


if __name__ == '__main__':
  absltest.main()
