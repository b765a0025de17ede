"""Tests of records."""

from absl.testing import absltest

from harness.pages.comparison import records
from harness.pages.testing import jobs
from harness.results import entry as entry_lib
from harness.rules import rounds


class RecordsTest(absltest.TestCase):
  def test_a_result_of_ours(self):
    entry = jobs.entry()
    record = records.of_entry(entry, 512, 3.6)
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
    record = records.of_entry(entry, 10833, None)
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
    record = records.of_entry(entry, 512, None)
    self.assertEqual((record.result, record.latency_ms), (2.75, 2.5))

  def test_what_nobody_named(self):
    accuracy = entry_lib.Accuracy({'rouge1': 70.0, 'rougeLsum': None}, '')
    description = {
      'system_name': '',
      'accelerator_model_name': 'N/A',
      'host_processor_model_name': 'Some CPU',
    }
    entry = jobs.entry(accuracy=accuracy, description=description)
    record = records.of_entry(entry, 512, None)
    self.assertEqual(
      (record.system, record.accuracy), ('Some CPU', 'rouge1: 70')
    )

  def test_without_a_performance_run(self):
    with self.assertRaisesRegex(ValueError, 'has no performance run'):
      records.of_entry(jobs.entry(performance=None), 512, None)

  def test_published_costs_need_a_price_of_their_own(self):
    record = records.Record(
      False, 'f', 'Acme', 'Rack', 'r8', 'closed', 'v4.0', 'gptj-99', 'Offline',
      10.0, records.SAMPLES,
    )  # fmt: skip
    self.assertIsNone(records.cost(record, {'': 3.6}))
    self.assertAlmostEqual(records.cost(record, {'r8': 3.6}), 0.1)
    self.assertAlmostEqual(records.cost(record, {'Rack': 36}), 1.0)


if __name__ == '__main__':
  absltest.main()
