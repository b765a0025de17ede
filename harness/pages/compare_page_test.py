"""Tests the page that compares results."""

import os

from absl.testing import absltest

from harness.pages import compare_page
from harness.pages import official_results
from harness.pages.testing import jobs
from harness.pages.testing import published
from harness.results import entry as entry_lib
from harness.rules import rounds
from saxml_ext.common.pages.testing import reading

_ATTACK = '</script><img src=x onerror=alert(1)>'


class CompareTest(absltest.TestCase):
  def published(self, *rows):
    path = os.path.join(self.create_tempdir().full_path, 'summary.json')
    return official_results.read(published.write_json(path, list(rows)))

  def ours(self, **changes):
    return compare_page.from_entry(jobs.entry(**changes), 512, None)

  def test_own_results_precede_published_ones(self):
    page = reading.Page(
      compare_page.render([*self.published(published.json_row()), self.ours()])
    )
    self.assertEqual([r['ours'] for r in page.data['records']], [True, False])
    self.assertContainsSubset(
      ['caveat', 'choose', 'bars', 'table', 'results', 'filters'], page.ids
    )
    self.assertIn('1 of this harness', page.texts)
    self.assertIn('1 published', page.texts)
    self.assertIn('may not be comparable', page.text)
    self.assertEqual(page.outside, [])
    self.assertLen(page.scripts, 3)

  def test_table_has_all_records(self):
    page = reading.Page(
      compare_page.render([self.ours(), *self.published(published.json_row())])
    )
    for text in ('Tiny box (cell)', 'Rack, large', '20,000', 'Queries/s'):
      self.assertIn(text, page.texts)
    self.assertIn('F1 90.36', page.texts)
    self.assertEqual(page.tags.count('tr'), 3)

  def test_filters_offer_existing_values(self):
    rows = [published.json_row(version=v) for v in ('v4.0', 'v4.1')]
    page = reading.Page(compare_page.render(self.published(*rows)))
    self.assertContainsSubset(
      ['v4.0', 'v4.1', 'bert-99', 'Server'], page.options
    )
    self.assertNotIn('Offline', page.options)

  def test_page_opens_with_the_benchmark_of_own_results(self):
    records = self.published(published.json_row())
    page = reading.Page(compare_page.render([self.ours(), *records]))
    self.assertEqual(page.selected[0], 'gptj-99')
    self.assertEqual(set(page.selected[1:4]), {''})
    page = reading.Page(compare_page.render(records))
    self.assertEqual(page.selected[0], '')

  def test_columns_without_a_figure_are_left_out(self):
    texts = reading.Page(compare_page.render([self.ours(energy={})])).texts
    self.assertNotIn('J per sample', texts)
    self.assertNotIn('Cost per 1,000', texts)
    texts = reading.Page(compare_page.render([self.ours()])).texts
    self.assertIn('J per sample', texts)

  def test_own_results_alone_have_no_note(self):
    text = reading.Page(compare_page.render([self.ours()])).text
    self.assertIn('None was submitted or reviewed', text)
    self.assertNotIn('may not be comparable', text)

  def test_texts_are_escaped(self):
    row = published.json_row(
      System=_ATTACK, Submitter=_ATTACK, Accuracy=_ATTACK, Platform=_ATTACK
    )
    page = reading.Page(
      compare_page.render([*self.published(row), self.ours(system=_ATTACK)])
    )
    self.assertNotIn('img', page.tags)
    self.assertEqual(page.data['records'][1]['system'], _ATTACK)
    self.assertLen(page.scripts, 3)

  def test_nothing_to_compare(self):
    with self.assertRaisesRegex(ValueError, 'no results'):
      compare_page.render([])


class RecordsTest(absltest.TestCase):
  def test_record_of_an_own_result(self):
    entry = jobs.entry()
    record = compare_page.from_entry(entry, 512, 3.6)
    self.assertTrue(record.ours)
    self.assertEqual(record.origin, entry.id)
    self.assertEqual((record.result, record.unit), (40.0, 'Queries/s'))
    self.assertEqual((record.system, record.platform), ('Tiny box', 'cell'))
    self.assertEqual(record.accelerators, '')
    self.assertEqual(record.score, 71.5)
    self.assertEqual(record.latency_ms, 950.0)
    self.assertEqual(record.joules_per_sample, 2.0)
    self.assertAlmostEqual(record.cost_per_1000, 0.025)
    self.assertEqual(
      record.remark, 'run of 60.0 s; not the official set (512 samples)'
    )

  def test_a_long_valid_run_of_the_official_set_has_no_remark(self):
    performance = entry_lib.Performance(
      True, 'latency_ns', 2.5e6, seconds=601.0, samples=1000
    )
    entry = jobs.entry(
      rounds.SINGLE_STREAM,
      benchmark='bert',
      model='bert-99',
      performance=performance,
      accuracy=entry_lib.Accuracy({'exact_match': 80.0, 'f1': 90.5}, ''),
      description={
        'accelerators_per_node': '8',
        'accelerator_model_name': 'Some GPU',
      },
    )
    record = compare_page.from_entry(entry, 10833, None)
    self.assertEqual(record.remark, '')
    self.assertEqual((record.result, record.unit), (2.5, 'Latency (ms)'))
    self.assertEqual(record.latency_ms, 2.5)
    self.assertEqual(record.accelerators, '8x Some GPU')
    self.assertEqual((record.system, record.score), ('Some GPU', 90.5))
    self.assertIsNone(record.cost_per_1000)

  def test_a_stream_has_the_figure_of_official_results(self):
    performance = entry_lib.Performance(
      True, 'latency_ns', 2.5e6, 601.0, 1000, early_stopping_ns=2.75e6
    )
    entry = jobs.entry(rounds.SINGLE_STREAM, performance=performance)
    record = compare_page.from_entry(entry, 512, None)
    self.assertEqual((record.result, record.latency_ms), (2.75, 2.5))

  def test_unnamed_systems_have_a_placeholder(self):
    accuracy = entry_lib.Accuracy({'rouge1': 70.0, 'rougeLsum': None}, '')
    description = {
      'system_name': '',
      'accelerator_model_name': 'N/A',
      'host_processor_model_name': 'Some CPU',
    }
    entry = jobs.entry(accuracy=accuracy, description=description)
    record = compare_page.from_entry(entry, 512, None)
    self.assertEqual(
      (record.system, record.accuracy), ('Some CPU', 'rouge1: 70')
    )

  def test_without_a_performance_run(self):
    with self.assertRaisesRegex(ValueError, 'has no performance run'):
      compare_page.from_entry(jobs.entry(performance=None), 512, None)

  def test_costs_of_published_results_need_their_price(self):
    record = compare_page.Record(
      False, 'f', 'Acme', 'Rack', 'r8', 'closed', 'v4.0', 'gptj-99', 'Offline',
      10.0, compare_page.SAMPLES,
    )  # fmt: skip
    self.assertIsNone(compare_page.cost(record, {'': 3.6}))
    self.assertAlmostEqual(compare_page.cost(record, {'r8': 3.6}), 0.1)
    self.assertAlmostEqual(compare_page.cost(record, {'Rack': 36}), 1.0)


if __name__ == '__main__':
  absltest.main()
