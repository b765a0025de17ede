import json

from absl.testing import absltest

from harness.benchmarks import llama
from harness.loadgen import loadgen_log
from harness.results import entry
from harness.results import figures
from harness.results import store
from harness.results.cli import views
from harness.results.testing import entries
from harness.results.testing import logs
from harness.rules import rounds

_BERT = entries.make(
  benchmark='bert',
  model='bert-99',
  scenario='SingleStream',
  accuracy=entry.Accuracy({'exact_match': 83.0, 'f1': 90.25}, '{}'),
  performance=entry.Performance(False, 'latency_ns', 1.5e6, 10.0, 99),
)


_FAST = entries.make(
  parameters={'params': 'B'},
  performance=entry.Performance(
    True,
    'samples_per_second',
    17.0,
    10.0,
    170,
    tokens_per_second=34.0,
    latency_ns={'99.00': 5e8},
  ),
)
_SERVER = entries.make(
  scenario='Server',
  performance=entry.Performance(False, 'queries_per_second', 8.5, 10.0, 85),
  accuracy=None,
)


class ViewsTest(absltest.TestCase):
  def _line(self, scenario: str) -> list[str]:
    run = logs.make(self.create_tempdir().full_path, scenario)
    return json.loads(
      views.performance_line(
        figures.performance(run.directory, scenario, run.timeline),
        loadgen_log.read(run.directory),
      )
    )

  def test_row(self):
    made = entries.make()
    self.assertEqual(
      views.row(made),
      (
        made.id,
        '2026-01-01 00:00',
        'gptj-99',
        'Offline',
        'v4.0',
        'cell',
        '8.500 samples/s',
        'VALID',
        'ROUGE 40.50 / 20.25 / 30.00',
      ),
    )
    self.assertEqual(views.row(_BERT)[-3:], ('1.500 ms', 'INVALID', 'F1 90.25'))
    failed = entry.Accuracy({'f1': 60.0}, '{}', passed=False)
    self.assertEqual(
      views.row(entries.make(accuracy=failed))[-1], 'F1 60.00, did not pass'
    )
    nothing = entries.make(accuracy=None, performance=None)
    self.assertEqual(views.row(nothing)[-3:], ('-', '-', '-'))
    self.assertLen(views.HEADING, len(views.row(nothing)))

  def test_command(self):
    for command, flags, expected in (
      (
        ('//harness:offline', '--a=b c'),
        (),
        "./bazelw run //harness:offline -- '--a=b c'",
      ),
      (('//harness:offline',), (), './bazelw run //harness:offline'),
      (
        ('/a/bin/server.runfiles/m/harness/server.py', '--a=1'),
        (),
        './bazelw run //harness:server -- --a=1',
      ),
      (
        ('bazel', 'run', '//harness:offline'),
        ('--rerun',),
        'bazel run //harness:offline -- --rerun',
      ),
      (('offline', '--rerun'), ('--rerun',), 'offline --rerun'),
    ):
      self.assertEqual(
        views.command(entries.make(command=command), *flags), expected
      )

  def test_performance_line_of_offline(self):
    words = self._line(rounds.OFFLINE)
    self.assertEqual(words[0], 'VALID')
    self.assertRegex(words[1], r'^Samples_per_second=[\d.]+$')
    self.assertEqual(words[2:], ['target_qps=1500'])

  def test_performance_line_of_server(self):
    words = self._line(rounds.SERVER)
    self.assertEqual(words[0], 'VALID')
    self.assertRegex(words[1], r'^Completed_samples_per_second=[\d.]+$')
    self.assertEqual(words[2], 'target_qps=500')
    self.assertRegex(words[3], r'^99th_percentile_latency=[\d.]+ms$')
    self.assertEqual(words[4], 'target_latency=20000ms')
    self.assertRegex(words[5], r'^latency_to_target=0\.\d+$')

  def test_performance_line_of_tokens(self):
    run = logs.make(
      self.create_tempdir().full_path,
      rounds.INTERACTIVE,
      benchmark=llama.LLAMA,
    )
    performance = figures.performance(run.directory, rounds.INTERACTIVE)
    words = json.loads(
      views.performance_line(performance, loadgen_log.read(run.directory))
    )
    self.assertEqual(words[2], 'target_qps=500')
    self.assertRegex(words[3], r'^99th_percentile_ttft=[\d.]+ms$')
    self.assertEqual(words[4], 'target_ttft=500ms')
    self.assertRegex(words[5], r'^99th_percentile_tpot=[\d.]+ms$')
    self.assertEqual(words[6:], ['target_tpot=30ms'])

  def test_a_llama_has_its_tokens(self):
    run = entry.Performance(
      True,
      *('queries_per_second', 8.5, 10.0, 85, 480.25),
      first_token_ns={'99.00': 4e8},
      per_token_ns={'99.00': 2e7},
      mean_first_token_ns=1e8,
      mean_per_token_ns=1e7,
    )
    made = entries.make(
      benchmark=llama.LLAMA.name, scenario=rounds.INTERACTIVE, performance=run
    )
    self.assertIn('8.500 queries/s, 480.2 tokens/s', views.row(made))
    text = views.overview(store.Stored(made, '/results/x'))
    self.assertRegex(text, 'first token +p99 400.000 ms, mean 100.000 ms')
    self.assertRegex(text, 'per token +p99 20.000 ms, mean 10.000 ms')
    rows = {row[0]: row[1:] for row in views.side_by_side([made, made])}
    for name, cell in (
      ('p99 first token', '400.000 ms'),
      ('mean first token', '100.000 ms'),
      ('p99 per token', '20.000 ms'),
      ('mean per token', '10.000 ms'),
    ):
      self.assertEqual(rows[name], (cell, f'{cell} (1.000x)'))

  def test_performance_line_of_single_stream(self):
    words = self._line(rounds.SINGLE_STREAM)
    self.assertEqual(words[0], 'VALID')
    self.assertRegex(words[1], r'^90th_percentile_latency=[\d.]+ms$')
    self.assertRegex(words[2], r'^early_stopping_90th_percentile=[\d.]+ms$')
    self.assertRegex(words[3], r'^loadgen_overhead=[\d.]+%$')

  def test_overview_shows_known_values(self):
    entry = entries.make(
      energy={'rapl': 12.5},
      notes={'problems': ['too slow'], 'probes': []},
      versions={'jax': '1.0'},
      hashes={'dataset': 'ab'},
    )
    text = views.overview(store.Stored(entry, '/results/x'))
    for part in (
      '/results/x',
      '8.500 samples/s, VALID',
      'p99 1000.000 ms',
      "{'rouge1': 40.5",
      '12.5 J (rapl)',
      'jax 1.0',
      'dataset ab',
      'governor     unknown',
      "problems: ['too slow']",
    ):
      self.assertIn(part, text)
    bare = entries.make(accuracy=None, performance=None)
    self.assertNotIn('probes', text)
    self.assertNotIn('latency', views.overview(store.Stored(bare, '/x')))


class SideBySideTest(absltest.TestCase):
  def _rows(self, *compared: entry.Entry) -> dict[str, tuple[str, ...]]:
    return {row[0]: row[1:] for row in views.side_by_side(compared)}

  def test_figures_of_one_kind_have_ratios(self):
    first = entries.make()
    rows = self._rows(first, _FAST)
    self.assertEqual(rows[''], (first.id, _FAST.id))
    self.assertEqual(
      rows['result'], ('8.500 samples/s', '17.000 samples/s (2.000x)')
    )
    self.assertEqual(
      rows['p99 latency'], ('1000.000 ms', '500.000 ms (0.500x)')
    )
    self.assertEqual(rows['tokens/s'], ('-', '34.0'))
    self.assertEqual(rows['ROUGE-1'], ('40.5000', '40.5000 (1.000x)'))
    self.assertNotIn('F1', rows)
    self.assertNotIn('p50 latency', rows)

  def test_figures_of_different_kinds_have_none(self):
    rows = self._rows(entries.make(), _SERVER)
    self.assertEqual(rows['result'], ('8.500 samples/s', '8.500 queries/s'))
    self.assertEqual(rows['valid'], ('VALID', 'INVALID'))
    self.assertEqual(rows['ROUGE-1'], ('40.5000', '-'))

  def test_first_without_a_run(self):
    rows = self._rows(entries.make(performance=None), _FAST)
    self.assertEqual(rows['result'], ('-', '17.000 samples/s'))
    self.assertEqual(rows['valid'], ('-', 'VALID'))


if __name__ == '__main__':
  absltest.main()
