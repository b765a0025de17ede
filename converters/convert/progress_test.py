"""Tests of showing progress where there is no terminal."""

import contextlib
import io
from unittest import mock

from absl.testing import absltest

from converters.convert import progress


class ProgressTest(absltest.TestCase):
  def test_lines_now_and_then_with_rate_and_time_left(self):
    out = io.StringIO()
    with (
      contextlib.redirect_stderr(out),
      mock.patch.object(progress.time, 'monotonic') as clock,
    ):
      clock.return_value = 100.0
      with progress.Progress('Converting', 4_000_000_000) as bar:
        for second in range(1, 9):
          clock.return_value = 100.0 + second
          bar.advance(200_000_000, f'v{second}')
    self.assertEqual(
      out.getvalue(), 'Converting v5: 1.0 of 4.0 GB, 200 MB/s, 15 s left\n'
    )

  def test_what_an_earlier_run_did_does_not_count_in_the_rate(self):
    out = io.StringIO()
    with (
      contextlib.redirect_stderr(out),
      mock.patch.object(progress.time, 'monotonic') as clock,
    ):
      clock.return_value = 100.0
      with progress.Progress('Converting', 4_000_000_000, 2_000_000_000) as bar:
        clock.return_value = 110.0
        bar.advance(1_000_000_000, 'v')
    self.assertEqual(
      out.getvalue(), 'Converting v: 3.0 of 4.0 GB, 100 MB/s, 10 s left\n'
    )

  def test_a_bar_on_a_terminal(self):
    out = io.StringIO()
    out.isatty = lambda: True
    with (
      contextlib.redirect_stderr(out),
      progress.Progress('Converting', 2_000_000) as bar,
    ):
      bar.advance(2_000_000, 'v')
    self.assertIn('Converting', out.getvalue())
    self.assertIn('2.0/2.0 MB', out.getvalue())


if __name__ == '__main__':
  absltest.main()
