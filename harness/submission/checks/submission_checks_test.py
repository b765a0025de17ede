import dataclasses
import pathlib
import shutil

from absl.testing import absltest
from absl.testing import parameterized

from harness.benchmarks import gptj
from harness.description import description as description_lib
from harness.rules import rounds
from harness.submission.checks import submission_checks
from harness.submission.testing import jobs

_OFFLINE = jobs.Job(
  samples=gptj.GPTJ.full_set,
  target_qps=100,
  figures=jobs.HIGH[gptj.GPTJ],
)
_STREAM = dataclasses.replace(
  _OFFLINE,
  scenario=rounds.SINGLE_STREAM,
  target_qps=None,
  target_latency_ms=1.0,
)
_SERVER = dataclasses.replace(
  _OFFLINE,
  scenario=rounds.SERVER,
  target_qps=3000,
  target_latency_ms=20_000,
)
_WEIGHTS = {'checkpoint': 'c', 'precision': 'float32'}
_TINY = {'params': 'saxml_ext.params.gptj.TinyFP32', 'checkpoint': 'c'}
_OFFICIAL = {'effective_min_duration_ms': rounds.MIN_DURATION_MS}


def _system(**values) -> dict[str, object]:
  return {'parameters': {'system': values}}


class WholeTest(parameterized.TestCase):
  """Tests one problem at a time, on real logs stretched to ten minutes."""

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.made = pathlib.Path(absltest.get_default_test_tmpdir(), 'made')
    shutil.rmtree(cls.made, ignore_errors=True)
    for name, job in (
      ('offline', _OFFLINE),
      ('stream', _STREAM),
      ('server', _SERVER),
    ):
      jobs.make(cls.made / name, job)
      jobs.last(cls.made / name / 'performance' / 'run_1', 601, **_OFFICIAL)

  def setUp(self):
    super().setUp()
    self.root = pathlib.Path(self.create_tempdir().full_path)
    shutil.copytree(self.made, self.root, dirs_exist_ok=True)
    self.performance = self.root / 'offline' / 'performance' / 'run_1'
    self.accuracy = self.root / 'offline' / 'accuracy'

  def problems(self, **values) -> list[str]:
    results = values.pop('results', None) or jobs.load(
      self.root / 'offline', self.root / 'stream'
    )
    values = {'division': 'closed'} | values
    return submission_checks.problems(jobs.submission(results, **values))

  def assert_problem(self, pattern: str, **values) -> None:
    texts = self.problems(**values)
    self.assertLen(texts, 1, texts)
    self.assertRegex(texts[0], pattern)

  def with_entry(self, **values) -> dict[str, object]:
    """Returns the results, with a changed entry in the first one."""
    first, second = jobs.load(self.root / 'offline', self.root / 'stream')
    entry = dataclasses.replace(first.entry, **values)
    return {'results': (dataclasses.replace(first, entry=entry), second)}

  def test_valid_submission_has_no_problem(self):
    self.assertEqual(self.problems(), [])
    self.assertEqual(self.problems(division='open'), [])

  @parameterized.parameters(
    ({'effective_min_duration_ms': 599_999}, 'min_duration was 599999 ms'),
    ({'result_validity': 'INVALID'}, 'reports the performance run as INVALID'),
    ({'effective_qsl_rng_seed': 1}, 'qsl_rng_seed was 1 instead of 132818655'),
    ({'effective_schedule_rng_seed': 1}, 'schedule_rng_seed was 1'),
    (
      {'effective_performance_sample_count': 64},
      'sample_count was 64, but every',
    ),
    ({'effective_samples_per_query': 9}, 'Offline requested 9 samples'),
    ({'qsl_reported_total_count': 100}, 'performance run had 100 samples'),
  )
  def test_performance_log(self, values, pattern):
    jobs.change(self.performance, **values)
    self.assert_problem(pattern)

  @parameterized.parameters(
    ('offline', {'result_samples_per_second': 99.0}, 'shows result_samples'),
    ('offline', {'result_validity': 'INVALID'}, 'shows result_validity as VAL'),
    ('offline', {'effective_target_qps': 12345.0}, 'shows effective_target'),
    ('offline', {'sut_name': 'Another'}, 'shows sut_name as PySUT'),
    ('offline', {'effective_scenario': 'Server'}, 'log is of Server, not of'),
    ('stream', {'early_stopping_latency_ss': 10}, 'shows early_stopping_lat'),
    ('stream', {'result_mean_latency_ns': 10}, 'shows result_mean_latency_ns'),
    ('stream', {'power_end': None}, 'has no power_end'),
  )
  def test_edited_detail_log_is_a_problem(self, name, values, pattern):
    jobs.edit(self.root / name / 'performance' / 'run_1', **values)
    for division in ('open', 'closed'):
      texts = self.problems(division=division)
      self.assertRegex('\n'.join(texts), pattern)

  @parameterized.parameters(
    ('offline', 'result_samples_per_second', 99.0, 'is 99, but .* samples in'),
    (
      'offline',
      'result_90.00_percentile_latency_ns',
      1,
      'ns is .*, but .* is only 1.$',
    ),
    ('stream', 'early_stopping_latency_ss', 10, 'early_.*_ss is only 10.$'),
    (
      'stream',
      'power_end',
      '12-01-2026 03:10:00.000',
      'queries of .* ns .* tak',
    ),
  )
  def test_two_edited_logs_are_a_problem(self, name, key, value, pattern):
    jobs.change(self.root / name / 'performance' / 'run_1', **{key: value})
    text = '\n'.join(self.problems(division='open'))
    self.assertRegex(text, f'contradicts itself: .*{pattern}')

  def test_a_summary_without_its_figures(self):
    log = self.performance / 'mlperf_log_summary.txt'
    lines = log.read_text('utf-8').splitlines()
    left = (
      line for line in lines if not line.startswith(('Result', 'Samples'))
    )
    log.write_text('\n'.join(left), 'utf-8')
    texts = self.problems(division='open')
    self.assertLen(texts, 2)
    self.assertIn('does not show result_samples_per_second', texts[0])
    self.assertIn('does not show result_validity', texts[1])

  def test_figures_must_equal_the_log(self):
    faster = dataclasses.replace(
      jobs.load(self.root / 'offline')[0].entry.performance, value=1e4
    )
    self.assert_problem(
      "result.json has samples_per_second 10000.0, but LoadGen's log",
      division='open',
      **self.with_entry(performance=faster),
    )

  def test_short_runs_are_for_open_submissions_to_old_rounds(self):
    jobs.change(self.performance, effective_min_duration_ms=100)
    self.assertEqual(self.problems(division='open'), [])

  def test_accuracy_run_of_a_part_of_the_set(self):
    jobs.change(self.accuracy, qsl_reported_total_count=100)
    self.assert_problem('accuracy run had 100 samples, but closed requires')
    self.assertEqual(self.problems(division='open'), [])

  def test_equal_issue_where_the_round_asks_for_it(self):
    run = self.root / 'stream' / 'performance' / 'run_1'
    key = 'effective_sample_concatenate_permutation'
    jobs.change(run, **{key: False})
    self.assert_problem('SingleStream .* not issued equally often')
    self.assertEqual(self.problems(division='open'), [])

  def test_logged_errors_are_a_problem(self):
    log = self.accuracy / 'mlperf_log_detail.txt'
    lines = log.read_text('utf-8').splitlines()
    lines[-1] = lines[-1].replace('"is_error": false', '"is_error": true')
    log.write_text('\n'.join(lines) + '\n', 'utf-8')
    self.assert_problem('LoadGen logged 1 errors in the accuracy run')

  @parameterized.parameters('rouge1', 'rouge2', 'rougeL', 'gen_len')
  def test_figure_below_its_target_is_a_problem(self, metric):
    high = jobs.HIGH[gptj.GPTJ]
    low = high | {metric: high[metric] * 0.89}
    (self.accuracy / 'accuracy.txt').write_text(f'{low}\n', 'utf-8')
    scored = dataclasses.replace(
      jobs.load(self.root / 'offline')[0].entry.accuracy, metrics=low
    )
    self.assert_problem(
      f'{metric} is .*, but gptj-99 requires at',
      **self.with_entry(accuracy=scored),
    )
    self.assertEqual(
      self.problems(division='open', **self.with_entry(accuracy=scored)), []
    )

  def test_figures_must_equal_the_result(self):
    high = jobs.HIGH[gptj.GPTJ] | {'rouge1': 43.5}
    (self.accuracy / 'accuracy.txt').write_text(f'{high}\n', 'utf-8')
    for division in ('open', 'closed'):
      self.assert_problem(
        'has rouge1 43.5, but the result has 42.9865', division=division
      )

  def test_unread_figures_may_differ(self):
    text = "{'rouge1': np.float64(43.1), 'rouge2': 20.1235, 'gen_len': 4016878}"
    (self.accuracy / 'accuracy.txt').write_text(text, 'utf-8')
    self.assert_problem('lacks rouge1, rougeL in the format', division='open')

  def test_higher_targets_of_the_other_model(self):
    results = jobs.load(self.root / 'offline', self.root / 'stream')
    renamed = tuple(
      dataclasses.replace(
        result, entry=dataclasses.replace(result.entry, model='gptj-99.9')
      )
      for result in results
    )
    self.assertEqual(self.problems(results=renamed), [])

  def test_missing_answers_are_a_problem(self):
    log = self.accuracy / 'mlperf_log_accuracy.json'
    lines = log.read_text('utf-8').splitlines()
    log.write_text('\n'.join(lines[:-3] + [lines[-2], ']']), 'utf-8')
    self.assert_problem('has answers to 13367 samples')

  @parameterized.parameters(
    (
      _system(model_id='/sax/test/gptj', **_WEIGHTS),
      'does not record its beam',
    ),
    (_system(overrides={'BEAM_SIZE': '2'}, **_TINY), 'used 2 beams'),
    (
      _system(overrides={'PRECOMPUTE_KV_CACHE_PREFIX': '"Be"'}, **_TINY),
      'run with PRECOMPUTE_KV_CACHE_PREFIX',
    ),
  )
  def test_entry(self, values, pattern):
    texts = self.problems(**self.with_entry(**values))
    self.assertNotEmpty(texts)
    for problem in texts:
      self.assertRegex(problem, pattern)

  def test_network_division(self):
    values = {'division': 'network', 'category': 'datacenter'}
    network = dict.fromkeys(description_lib.NETWORK, 'Ethernet')
    picture = pathlib.Path(self.create_tempfile('net.svg').full_path)
    served = {'description': network, 'diagram': picture} | values
    shutil.rmtree(self.root / 'stream')
    shutil.copytree(self.made / 'server', self.root / 'stream')
    texts = self.problems(**served)
    self.assertLen(texts, 2)
    self.assertRegex(texts[0], 'did not log .* as a "Network SUT" in both runs')
    served['results'] = self.over_network()
    self.assertEqual(self.problems(**served), [])
    self.assert_problem(
      'lacks network_type, network_media, .*, network_topology[.] Write',
      **served | {'description': {}},
    )
    self.assert_problem('requires a diagram', **served | {'diagram': None})
    texts = self.problems(**served | {'category': 'edge'})
    self.assertIn('The Network division has no category edge.', texts[-1])
    texts = self.problems(**served | {'division': 'closed'})
    self.assertLen(texts, 2)
    self.assertRegex(texts[0], 'over a network. Submit it with --division=net')

  def over_network(self) -> tuple:
    """Returns the results, with logs of a run with the Network SUT."""
    for name in ('offline', 'stream'):
      for run in ('accuracy', 'performance/run_1'):
        jobs.change(self.root / name / run, sut_name='Network SUT: box:1')
    return jobs.load(self.root / 'offline', self.root / 'stream')

  def test_scenarios_of_the_category(self):
    first, _ = jobs.load(self.root / 'offline', self.root / 'stream')
    self.assert_problem('gptj-99 lacks SingleStream', results=(first,))
    self.assertLen(self.problems(category='datacenter'), 2)
    self.assertEqual(self.problems(division='open', results=(first,)), [])

  def test_round_without_gptj_is_a_problem(self):
    texts = self.problems(round='v5.1', division='open')
    self.assertIn(
      'v5.1 has no gptj-99 in the category edge. These rounds have it: v3.1,'
      ' v4.0, v4.1, v5.0.',
      texts,
    )
    self.assertTrue(
      any('run with the rules of v4.0, not v5.1' in p for p in texts)
    )

  def test_model_of_the_other_category(self):
    first, _ = jobs.load(self.root / 'offline', self.root / 'stream')
    entry = dataclasses.replace(first.entry, model='llama3.1-8b')
    self.assertIn(
      'v6.1 has no llama3.1-8b in the category edge. Pass'
      ' --category=datacenter.',
      self.problems(
        division='open',
        round='v6.1',
        results=(dataclasses.replace(first, entry=entry),),
      ),
    )

  def test_one_result_of_a_scenario(self):
    first, second = jobs.load(self.root / 'offline', self.root / 'stream')
    self.assert_problem(
      'are both gptj-99 Offline', results=(first, first, second)
    )

  def test_values_of_the_user_are_required(self):
    self.assert_problem('lacks cooling[.] Write', description={'cooling': ' '})
    self.assert_problem("status is 'sold'", description={'status': 'sold'})
    self.assert_problem(
      'lacks starting_weights_filename, weight_data_types',
      **self.with_entry(system='reference', parameters={}),
    )
    known = {'starting_weights_filename': 'a.bin', 'weight_data_types': 'int8'}
    self.assertEqual(
      self.problems(
        measurements=known,
        **self.with_entry(system='reference', parameters={}),
      ),
      [],
    )

  def test_results_of_one_system(self):
    other = jobs.system_description() | {'host_processor_model_name': 'Z80'}
    self.assert_problem(
      'different systems: host_processor_model_name .N/A / Z80.[.] Submit',
      **self.with_entry(description=other),
    )
    given = {'host_processor_model_name': 'Z80'}
    self.assertEqual(
      self.problems(description=given, **self.with_entry(description=other)), []
    )

  def test_names_must_fit_folders(self):
    self.assert_problem("--submitter 'a/b' cannot be a folder", submitter='a/b')
    self.assertEqual(self.problems(system_name='Two words'), [])
    self.assert_problem(
      'closed submission cannot have a --model', model_name='tiny'
    )

  def test_missing_runs_are_a_problem(self):
    shutil.rmtree(self.performance)
    self.assert_problem('Offline .* has no performance run')
    shutil.rmtree(self.root / 'stream' / 'accuracy')
    self.assertLen(self.problems(), 2)


if __name__ == '__main__':
  absltest.main()
