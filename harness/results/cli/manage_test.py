import contextlib
import io
import json
import os
from unittest import mock

from absl import app
from absl.testing import absltest
from absl.testing import flagsaver

from harness.results import figures
from harness.results import store as store_lib
from harness.results.cli import manage
from harness.results.testing import entries
from harness.results.testing import logs
from harness.rules import rounds

_OTHER = entries.make(
  scenario='Server', began='2026-02-01T00:00:00+00:00', performance=None
)


class ManageTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._cache = self.create_tempdir().full_path
    self._root = os.path.join(self._cache, 'results')
    self._store = store_lib.Store(self._root)
    self.enter_context(flagsaver.flagsaver(cache_dir=self._cache))

  def _add(self, entry) -> str:
    with self._store.begin(entry.id, entry.model) as directory:
      entry.write(directory)
    return directory

  def _run(self, *words: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
      manage.main(['results', *words])
    return out.getvalue()

  def test_an_empty_store(self):
    self.assertEqual(self._run(), f'no results in {self._root}\n')

  def test_list(self):
    for entry in (entries.make(), _OTHER):
      self._add(entry)
    lines = self._run('list').splitlines()
    self.assertStartsWith(lines[0], 'id')
    self.assertStartsWith(lines[1], _OTHER.id)
    self.assertStartsWith(lines[2], entries.make().id)
    self.assertRegex(lines[2], '8.500 samples/s +VALID +ROUGE 40.50')
    self.assertLen(lines, 3)

  def test_list_filters(self):
    for entry in (entries.make(), _OTHER):
      self._add(entry)
    for name, value, count in (
      ('scenario', 'Server', 1),
      ('benchmark', 'bert', 0),
      ('model', 'gptj-99', 2),
      ('round', 'v4.0', 2),
      ('system', 'engine', 0),
      ('valid', True, 1),
      ('valid', False, 0),
    ):
      with flagsaver.flagsaver(**{name: value}):
        text = self._run('list')
      self.assertEqual(text.count('gptj-99'), count, (name, text))
      self.assertEqual('no results of that kind' in text, not count)

  def test_list_names_unreadable_results(self):
    with self.assertRaises(KeyboardInterrupt):
      with self._store.begin(_OTHER.id, 'gptj') as unfinished:
        raise KeyboardInterrupt
    broken = self._add(entries.make())
    with open(os.path.join(broken, 'result.json'), 'w', encoding='utf-8'):
      pass
    err = io.StringIO()
    with contextlib.redirect_stderr(err):
      text = self._run('list')
      with flagsaver.flagsaver(unfinished=True):
        every = self._run('list')
      with self._store.begin(_OTHER.id, 'gptj'):
        running = self._run('list')
    self.assertIn(
      'jobs that ended without a result: 1. --unfinished lists them', text
    )
    self.assertNotIn(unfinished, text)
    self.assertIn(f'unfinished: {_OTHER.id}, no result; {unfinished}', every)
    self.assertIn(f'running: {_OTHER.id}, process {os.getpid()};', running)
    self.assertNotIn('jobs that ended', running)
    self.assertIn(f'unreadable: {entries.make().id}; {broken}', err.getvalue())
    with self.assertRaisesRegex(SystemExit, 'is not finished'):
      self._run('show', _OTHER.id)

  def test_show(self):
    entry = entries.make()
    self._add(entry)
    letters = entry.id[:6]
    self.assertEqual(
      self._run('show', letters, 'accuracy_report'), entry.accuracy.line + '\n'
    )
    self.assertEqual(
      self._run('show', letters, 'command'),
      './bazelw run //harness:offline -- --sample_count=8\n',
    )
    self.assertEqual(
      self._run('rerun', letters),
      './bazelw run //harness:offline -- --sample_count=8 --rerun\n',
    )
    self.assertEqual(
      json.loads(self._run('show', letters, 'json'))['id'], entry.id
    )
    self.assertIn('8.500 samples/s, VALID', self._run('show', letters))

  def test_show_performance_and_summary(self):
    run = logs.make(self.create_tempdir().full_path, rounds.OFFLINE)
    measured = figures.performance(run.directory, rounds.OFFLINE, run.timeline)
    entry = entries.make(performance=measured)
    directory = self._add(entry)
    os.makedirs(os.path.join(directory, 'performance'))
    os.rename(run.directory, os.path.join(directory, 'performance/run_1'))
    self.assertEqual(
      self._run('show', entry.id, 'performance'),
      f'["VALID","Samples_per_second={measured.value:g}","target_qps=1500"]\n',
    )
    self.assertEqual(self._run('show', entry.id, 'summary'), measured.summary)

  def test_compare(self):
    for entry in (entries.make(), _OTHER):
      self._add(entry)
    text = self._run('compare', _OTHER.id, entries.make().id)
    self.assertRegex(text, 'scenario +Server +Offline')

  def test_rm(self):
    directory = self._add(entries.make())
    with self.assertRaisesRegex(SystemExit, 'Pass --yes'):
      with mock.patch('sys.stdin', io.StringIO()):
        self._run('rm', entries.make().id)
    self.assertTrue(os.path.isdir(directory))
    with flagsaver.flagsaver(yes=True):
      text = self._run('rm', entries.make().id[:4])
    self.assertEqual(text, f'removed {directory}\n')
    self.assertFalse(os.path.exists(directory))

  def test_mistakes_are_reported(self):
    self._add(entries.make())
    entry_id = entries.make().id
    self._add(_OTHER)
    for words, message in (
      (('show', 'zz'), "results: no result 'zz' in"),
      (('show', ''), "results: no result '' in"),
      (
        ('show', entry_id, 'color'),
        "no part 'color'. Available: accuracy_report",
      ),
      (('show', entry_id, 'performance'), 'run_1'),
      (('show', _OTHER.id, 'summary'), 'has no performance run'),
      (('show', _OTHER.id, 'performance'), 'has no performance run'),
    ):
      with self.assertRaisesRegex(SystemExit, message):
        self._run(*words)
    for words in (('remove',), ('show',), ('compare',), ('list', 'x')):
      with self.assertRaises(app.UsageError):
        self._run(*words)


if __name__ == '__main__':
  absltest.main()
