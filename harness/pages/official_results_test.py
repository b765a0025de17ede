"""Tests the reader of published results."""

import os

from absl.testing import absltest

from harness.pages import official_results
from harness.pages.testing import published


class OfficialTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._path = os.path.join(self.create_tempdir().full_path, 'table')

  def csv(self, *rows):
    return official_results.read(published.write_csv(self._path, list(rows)))

  def json(self, *rows):
    return official_results.read(published.write_json(self._path, list(rows)))

  def test_a_csv_of_the_checker(self):
    (record,) = self.csv(published.csv_row(version='v4.0', Result='100.5'))
    self.assertFalse(record.ours)
    self.assertEqual(record.submitter, 'Acme')
    self.assertEqual(record.system, 'Rack, large')
    self.assertEqual((record.division, record.round), ('closed', 'v4.0'))
    self.assertEqual((record.model, record.scenario), ('gptj-99', 'Offline'))
    self.assertEqual(record.accelerators, '8x Some GPU')
    self.assertEqual(record.score, 43.1)
    self.assertIn('ROUGEL: 30.1', record.accuracy)
    self.assertEqual(record.origin, 'table')

  def test_a_summary_of_results(self):
    (record,) = self.json(published.json_row())
    self.assertEqual((record.result, record.unit), (20000.0, 'Queries/s'))
    self.assertEqual((record.model, record.scenario), ('bert-99', 'Server'))
    self.assertEqual(record.accelerator_count, 4)
    self.assertAlmostEqual(record.score, 90.3568, places=4)
    self.assertEqual(record.remark, '')

  def test_records_with_the_names_of_the_csv(self):
    row = published.csv_row(Result=100.5, version='v4.0', Units='Samples/s')
    (record,) = self.json(row)
    self.assertEqual((record.model, record.result), ('gptj-99', 100.5))

  def test_tokens_of_gptj_become_samples(self):
    (offline,) = self.csv(published.csv_row())
    self.assertAlmostEqual(offline.result, 100.0)
    self.assertEqual(offline.unit, 'Samples/s')
    self.assertEqual(offline.published, '6900 Tokens/s')
    # The checker of v4.1 writes "Samples/s" for tokens/s.
    (server,) = self.csv(
      published.csv_row(Units='Queries/s', Scenario='Server')
    )
    self.assertAlmostEqual(server.result, 100.0)
    (old,) = self.csv(published.csv_row(version='v4.0', Units='Samples/s'))
    self.assertEqual((old.result, old.published), (6900.0, ''))
    (other,) = self.json(
      published.json_row(
        Model='llama2-70b-99', Performance_Units='Tokens/s', UsedModel='mine'
      )
    )
    self.assertEqual((other.result, other.unit), (20000.0, 'Tokens/s'))
    self.assertEqual(other.remark, 'model mine')

  def test_power_joins_its_performance(self):
    (record,) = self.csv(
      published.csv_row(has_power='True'),
      published.csv_row(has_power='True', Result='2500.0', Units='Watts'),
    )
    self.assertAlmostEqual(record.joules_per_sample, 25.0)
    (record,) = self.json(
      published.json_row(
        Scenario='SingleStream',
        Performance_Result=2.0,
        Performance_Units='Latency (ms)',
        Power_Result=1500.0,
        Power_Units='millijoules',
      )
    )
    self.assertAlmostEqual(record.joules_per_sample, 1.5)
    self.assertEqual(record.latency_ms, 2.0)

  def test_scenarios_in_small_letters(self):
    (record,) = self.csv(published.csv_row(Scenario='offline'))
    self.assertEqual(record.scenario, 'Offline')

  def test_a_system_without_accelerators(self):
    (record,) = self.csv(
      published.csv_row(accelerators_per_node='0', accelerator_model_name='-')
    )
    self.assertEqual(
      (record.accelerators, record.accelerator_count), ('', None)
    )

  def test_a_result_of_two_files_counts_once(self):
    self.json(published.json_row(), published.json_row(System='Other'))
    records = official_results.read_all([self._path, self._path])
    self.assertEqual(
      [record.system for record in records], ['Rack, large', 'Other']
    )

  def test_file_without_a_table_is_refused(self):
    for text, reason in (
      ('', 'has no results'),
      ('a,b\n1,2\n', 'record 1 has no Organization'),
      ('[1]', '1 is not a record'),
      ('[{"Submitter": "x"}]', 'has no Division'),
      ('[{]', 'Expecting'),
      ('{"a": 1}', 'has no results'),
      ('a,b\n1,2,3\n', 'line 2 has another number of columns'),
    ):
      with open(self._path, 'w', encoding='utf-8') as file:
        file.write(text)
      with self.assertRaisesRegex(ValueError, f'published results: .*{reason}'):
        official_results.read(self._path)

  def test_result_without_a_number_is_refused(self):
    for wrong in ('None', '', 'nan', '-1'):
      with self.assertRaisesRegex(ValueError, 'which is not a valid figure'):
        self.csv(published.csv_row(Result=wrong))

  def test_an_unknown_file(self):
    with self.assertRaises(FileNotFoundError):
      official_results.read(self._path)


if __name__ == '__main__':
  absltest.main()
