import contextlib
import io
import os

from absl import app
from absl.testing import absltest
from absl.testing import flagsaver

from harness.pages.cli import report
from harness.pages.testing import jobs
from harness.pages.testing import published
from harness.rules import rounds
from saxml_ext.common.pages.testing import reading


class ReportTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._dir = self.create_tempdir().full_path
    self._server = self._job('server', jobs.entry())
    self._offline = self._job('offline', jobs.entry(rounds.OFFLINE))

  def _job(self, name, entry):
    times = jobs.times(200, entry.scenario)
    return jobs.write(os.path.join(self._dir, name), entry, times)

  def _run(self, argv=('report',), **values):
    output = os.path.join(self._dir, 'pages', 'page.html')
    values = {'output': output, 'results_dir': self._dir} | values
    printed = io.StringIO()
    with flagsaver.flagsaver(**values), contextlib.redirect_stdout(printed):
      report.main(argv)
    self.assertIn(output, printed.getvalue())
    with open(output, encoding='utf-8') as file:
      return reading.Page(file.read())

  def test_single_result_has_its_own_page(self):
    page = self._run(result=[self._server], price_per_hour=['3.6'])
    self.assertIn('gptj-99 · Server', page.texts)
    self.assertIn('0.025', page.texts)

  def test_a_result_by_its_id(self):
    page = self._run(result=[jobs.entry(rounds.OFFLINE).id[:6]])
    self.assertIn('gptj-99 · Offline', page.texts)

  def test_several_are_compared(self):
    page = self._run(
      result=[self._server, self._offline],
      price_per_hour=['Tiny box:3.6'],
    )
    self.assertEqual(
      [r['cost_per_1000'] for r in page.data['records']], [0.025, 0.025]
    )

  def test_official_results_are_compared(self):
    path = os.path.join(self._dir, 'summary.csv')
    published.write_csv(path, [published.csv_row()])
    page = self._run(
      result=[self._server], official=[path], price_per_hour=['rack8:36']
    )
    self.assertEqual(
      [r['system'] for r in page.data['records']], ['Tiny box', 'Rack, large']
    )
    self.assertEqual(page.data['records'][0]['cost_per_1000'], None)
    self.assertAlmostEqual(page.data['records'][1]['cost_per_1000'], 0.1)

  def test_unusable_inputs_are_reported(self):
    for values, message in (
      ({}, 'There are no results'),
      ({'result': ['ffffffff']}, 'neither a directory nor the id'),
      ({'official': [self._dir + '/none.csv']}, 'none.csv: No such file'),
      (
        {'official': [self._server + '/result.json']},
        'not a table of published results',
      ),
      ({'result': [self._server], 'price_per_hour': ['x']}, 'is not a price'),
      (
        {'result': [self._server], 'output': self._server},
        'Is a directory',
      ),
    ):
      with self.assertRaisesRegex(SystemExit, f'report: .*{message}') as error:
        self._run(**values)
      self.assertNotIn('Errno', str(error.exception))

  def test_arguments_are_refused(self):
    with self.assertRaisesRegex(app.UsageError, "'more'"):
      self._run(['report', 'more'])


if __name__ == '__main__':
  absltest.main()
