import io
from unittest import mock

from absl.testing import absltest

from serve import progress as progress_lib


class ProgressTest(absltest.TestCase):
  def test_bar_is_occasional_lines_without_a_terminal(self):
    file = io.StringIO()
    clock = mock.patch.object(progress_lib.time, 'monotonic', return_value=0.0)
    with clock as now:
      with progress_lib.Progress(file).bar('run') as bar:
        for second in range(12):
          now.return_value = float(second)
          bar.update(second, 100, 'note')
    lines = file.getvalue().splitlines()
    self.assertEqual(
      lines, ['[    5 s] run: 5/100 note', '[   10 s] run: 10/100 note']
    )

  def test_empty_note_has_no_colon_without_a_terminal(self):
    file = io.StringIO()
    with progress_lib.Progress(file, interval_secs=0.0).bar('trial') as bar:
      bar.update(0, 0)
    self.assertEndsWith(file.getvalue(), 's] trial\n')

  def test_lines_are_not_cut_without_a_terminal(self):
    file = io.StringIO()
    note = 'read ' + 'directory/' * 20
    with progress_lib.Progress(file, interval_secs=0.0).bar('loading') as bar:
      bar.update(0, 0, note)
    self.assertEndsWith(file.getvalue(), f'loading: {note}\n')

  def test_bar_shows_the_note_on_a_terminal(self):
    console = progress_lib.rich_console.Console
    file = io.StringIO()
    with mock.patch.object(
      progress_lib.rich_console,
      'Console',
      lambda **kwargs: console(force_terminal=True, width=100, **kwargs),
    ):
      with progress_lib.Progress(file).bar('loading') as bar:
        bar.update(3, 8, 'step [bold]7[/bold]')
    self.assertIn('3/8', file.getvalue())
    self.assertIn('[bold]7[/bold]', file.getvalue())

  def test_rate_note(self):
    self.assertEqual(
      progress_lib.rate_note(20, 60, 10.0), '2.0 samples/s, 20 s left'
    )
    self.assertEqual(progress_lib.rate_note(0, 60, 10.0), '')

  def test_quiet_prints_texts(self):
    file = io.StringIO()
    shown = progress_lib.Progress(file, interval_secs=0.0, quiet=True)
    shown.stage('starting')
    with shown.bar('loading') as bar:
      bar.update(1, 2)
    shown.text('the report')
    self.assertEqual(file.getvalue(), 'the report\n')


if __name__ == '__main__':
  absltest.main()
