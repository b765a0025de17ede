"""Tests the page of one run."""

import dataclasses
import os

from absl.testing import absltest

from harness.benchmarks import llama
from harness.pages import run_page
from harness.pages import series
from harness.pages.testing import jobs
from harness.results import entry as entry_lib
from harness.rules import rounds
from saxml_ext.common.pages.testing import reading

_ATTACK = '</script><img src=x onerror=alert(1)>"\'&'


class PageTest(absltest.TestCase):
  def job(self, entry=None, scenario=rounds.SERVER, count=1200, **kept):
    directory = self.create_tempdir().full_path
    times = jobs.times(count, scenario, seconds=30.0)
    entry = entry or jobs.entry(scenario)
    jobs.write(directory, entry, **({'performance': times} | kept))
    return run_page.read(directory)

  def read(self, job, price=None):
    return reading.Page(run_page.render(job, price))

  def test_every_section_is_there(self):
    for scenario in rounds.SCENARIOS:
      shown = self.read(self.job(scenario=scenario))
      self.assertContainsSubset(
        ['result', 'throughput', 'latency', 'phases', 'tokens', 'accuracy']
        + ['economy', 'loadgen', 'command', 'system'],
        shown.ids,
      )
      self.assertIn(f'gptj-99 · {scenario}', shown.texts)
      self.assertIn('VALID', shown.texts)

  def test_tokens_of_llama_have_cards(self):
    run = dataclasses.replace(
      jobs.entry().performance,
      first_token_ns={'50.00': 1e8, '99.00': 4e8},
      per_token_ns={'50.00': 1e7, '99.00': 2e7},
      mean_first_token_ns=1.5e8,
      mean_per_token_ns=1.2e7,
    )
    entry = jobs.entry(
      rounds.INTERACTIVE,
      benchmark=llama.LLAMA.name,
      model='llama3.1-8b',
      performance=run,
    )
    shown = self.read(self.job(entry))
    for text in (
      'ms, 99th percentile; mean 150 ms; limit 500 ms',
      'ms, 99th percentile; mean 12 ms; limit 30 ms',
      'Time per output token, as LoadGen measured it',
    ):
      self.assertIn(text, shown.texts)
    names = [
      trace['name'] for trace in shown.data['figures']['first-token']['data']
    ]
    self.assertIn('latency limit', names)
    self.assertNotIn('TTFT', self.read(self.job()).texts)

  def test_every_chart_has_its_data(self):
    shown = self.read(self.job())
    charts = [i.removeprefix('chart-') for i in shown.ids if 'chart-' in i]
    self.assertCountEqual(charts, shown.data['figures'])

  def test_charts_show_the_timeline(self):
    job = self.job()
    figures = self.read(job).data['figures']
    samples = job.samples['performance']
    windows = series.windows(samples)
    rates = figures['throughput']['data'][0]
    for drawn, meant in (
      (rates['x'], windows.middles),
      (rates['y'], windows.samples_per_second),
      (
        figures['token-throughput']['data'][0]['y'],
        windows.tokens_per_second,
      ),
    ):
      for one, other in zip(drawn, meant, strict=True):
        self.assertAlmostEqual(one, other, delta=1e-5 * abs(other))
    self.assertEqual(sum(figures['tokens']['data'][0]['y']), 1200)
    marks = figures['latency-cdf']['data'][1]
    self.assertEqual(marks['y'], list(series.PERCENTILES))
    for drawn, percent in zip(marks['x'], marks['y']):
      meant = series.percentile(samples.latency, percent)
      self.assertAlmostEqual(drawn, meant, places=4)
    self.assertLen(figures['latency-time']['data'][0]['x'], 1200)

  def test_large_timelines_are_thinned(self):
    job = self.job(count=120_000)
    text = run_page.render(job)
    drawn = reading.Page(text).data['figures']['latency-time']['data'][0]
    self.assertBetween(len(drawn['x']), 4000, 4500)
    self.assertIn('of 120,000 samples are drawn', text)
    highest = job.samples['performance'].latency.max()
    self.assertAlmostEqual(max(drawn['y']), highest, places=4)

  def test_the_bound_of_the_server_scenario(self):
    far = self.read(self.job())
    self.assertIn('0 of 1,200 (0.00%) took longer.', far.text)
    self.assertIn('so it is not drawn', far.text)
    near = self.read(self.job(jobs.entry(benchmark='bert', model='bert-99')))
    self.assertIn('allows 130 ms', near.text)
    names = [t['name'] for t in near.data['figures']['latency-cdf']['data']]
    self.assertIn('latency limit', names)

  def test_page_loads_nothing_and_escapes_texts(self):
    entry = jobs.entry(
      system=_ATTACK,
      parameters={_ATTACK: _ATTACK},
      command=('run', _ATTACK),
      versions={_ATTACK: _ATTACK},
      description={'system_name': _ATTACK, 'notes': [_ATTACK]},
      notes={_ATTACK: _ATTACK},
    )
    shown = self.read(self.job(entry))
    self.assertEqual(shown.outside, [])
    self.assertNotIn('img', shown.tags)
    self.assertGreater(shown.text.count('<img src=x onerror'), 5)
    self.assertLen(shown.scripts, 2)

  def test_invalid_short_run_is_marked(self):
    performance = entry_lib.Performance(
      valid=False,
      metric='latency_ns',
      value=12.5e6,
      seconds=5.0,
      samples=100,
    )
    entry = jobs.entry(
      rounds.SINGLE_STREAM,
      performance=performance,
      notes={'problems': ['ran out of queries']},
    )
    shown = self.read(self.job(entry, rounds.SINGLE_STREAM))
    self.assertIn('INVALID', shown.texts)
    self.assertIn('ms, 90th percentile', shown.texts)
    self.assertIn('12.5', shown.texts)
    self.assertIn('LoadGen logged an error: ran out of queries', shown.texts)
    self.assertIn('official runs last at least 600 s', shown.text)

  def test_without_a_timeline(self):
    shown = self.read(self.job(performance=None))
    self.assertIn('has no timeline', shown.text)
    self.assertNotIn('throughput', shown.ids)

  def test_an_accuracy_run_alone(self):
    entry = jobs.entry(rounds.OFFLINE, performance=None)
    times = jobs.times(512, rounds.OFFLINE)
    shown = self.read(
      self.job(entry, rounds.OFFLINE, performance=None, accuracy=times)
    )
    self.assertIn('No performance run was made', shown.text)
    self.assertIn('answered in the accuracy run', shown.text)
    self.assertNotIn('loadgen', shown.ids)

  def test_model_without_generated_tokens(self):
    times = [
      dataclasses.replace(sample, tokens=0, first_token=None)
      for sample in jobs.times(100, rounds.MULTI_STREAM)
    ]
    entry = jobs.entry(
      rounds.MULTI_STREAM,
      benchmark='bert',
      model='bert-99',
      accuracy=entry_lib.Accuracy({'exact_match': 80.0, 'f1': 88.5}, ''),
    )
    shown = self.read(self.job(entry, performance=times))
    self.assertNotIn('tokens', shown.ids)
    self.assertNotIn('chart-first-token', shown.ids)
    self.assertNotIn('chart-token-throughput', shown.ids)
    self.assertIn('88.5000', shown.texts)
    self.assertIn('Of 13 queries', shown.text)

  def test_size_of_the_set(self):
    self.assertEqual(self.job().set_size, 512)  # It is the value of gen_num.
    entry = jobs.entry(accuracy=None, parameters={'task': {'sample_count': 99}})
    self.assertEqual(self.job(entry).set_size, 99)
    self.assertIsNone(self.job(jobs.entry(accuracy=None)).set_size)

  def test_cost(self):
    shown = self.read(self.job(), price=3.6)
    # A price of 3.6 per hour is 0.001 per second. The run took 60 s, so its
    # 2400 samples cost 0.06.
    self.assertIn('0.06', shown.texts)
    self.assertIn('0.025', shown.texts)
    self.assertIn('0.3165', shown.texts)
    self.assertIn('80 W', shown.texts)

  def test_no_result(self):
    with self.assertRaises(FileNotFoundError):
      run_page.read(self.create_tempdir().full_path)

  def test_a_broken_timeline(self):
    job = self.job()
    path = os.path.join(job.directory, 'timeline', 'performance.csv')
    with open(path, 'w', encoding='utf-8') as file:
      file.write('a,b\n1,2\n')
    with self.assertRaisesRegex(ValueError, 'is no timeline of a run'):
      run_page.read(job.directory)


if __name__ == '__main__':
  absltest.main()
