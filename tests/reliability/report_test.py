"""Tests the report's program: its output, its files and its exit code."""

import dataclasses
import json
import pathlib

from absl.testing import absltest

from saxml_ext.common.testing import modules
from tests.reliability.results import figures
from tests.reliability.results import page
from tests.reliability.results import store

_MODULE = 'tests.reliability.report'
_GOOD = figures.Outcome(
  '4',
  'full',
  (figures.Figure('starts <all>', 1000, least=1000),),
  date='2026-01-02T03:04:05+00:00',
  seconds=60,
  commit='abc',
  machine='a machine',
)
_BAD = dataclasses.replace(
  _GOOD, row='6', figures=(figures.Figure('accepted', 2, most=0),)
)


class ReportTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.path = pathlib.Path(self.create_tempdir()) / 'r.json'

  def report(self, *args: str):
    return modules.run(_MODULE, f'--results={self.path}', *args)

  def test_stored_results_are_shown(self):
    store.add(self.path, _GOOD)
    done = self.report()
    self.assertEqual(done.returncode, 0, done.stderr)
    self.assertIn('starts <all>: 1,000 (to reach: at least 1,000)', done.stdout)
    self.assertIn('an hour of mixed traffic', done.stdout)
    self.assertIn('not run', done.stdout)
    html = self.path.with_suffix('.html').read_text()
    self.assertIn('starts &lt;all&gt;', html)
    self.assertIn('2026-01-02 03:04', html)

  def test_missed_bound_is_a_failure(self):
    store.add(self.path, _GOOD)
    store.add(self.path, _BAD)
    done = self.report(f'--page={self.path}.page')
    self.assertEqual(done.returncode, 1)
    self.assertIn('NO  accepted: 2 (to reach: 0)', done.stdout)
    self.assertTrue(pathlib.Path(f'{self.path}.page').exists())

  def test_row_is_run(self):
    done = self.report('--rows=4', '--form=short')
    self.assertEqual(done.returncode, 0, done.stderr)
    (outcome,) = store.read(self.path)
    self.assertEqual((outcome.row, outcome.form), ('4', 'short'))
    self.assertTrue(outcome.met)
    self.assertIn('% busy', outcome.machine)

  def test_invalid_arguments_are_reported(self):
    for args, text in (
      (['--rows=4,99'], "no row '99'"),
      (['--form=middle'], 'full'),
      (['extra'], "unexpected argument 'extra'"),
    ):
      done = self.report(*args)
      self.assertNotEqual(done.returncode, 0, args)
      self.assertIn(text, done.stdout + done.stderr)
      self.assertNotIn('Traceback', done.stderr)
    self.path.write_text(json.dumps({'version': 99}))
    done = self.report()
    self.assertEqual(done.returncode, 1)
    self.assertIn('has no results of reliability tests', done.stderr)


class ChooseTest(absltest.TestCase):
  def test_full_forms_are_shown_before_short_ones(self):
    short = dataclasses.replace(_GOOD, form='short')
    self.assertEqual(page.choose([short, _GOOD]), {'4': _GOOD})
    self.assertEqual(page.choose([_GOOD, short]), {'4': _GOOD})
    self.assertEqual(page.choose([short]), {'4': short})


if __name__ == '__main__':
  absltest.main()
