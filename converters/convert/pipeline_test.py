"""Tests of preparing items in advance and of displaying progress."""

import contextlib
import io
import threading
from unittest import mock

from absl.testing import absltest

from converters.convert import pipeline


class PrefetchTest(absltest.TestCase):
  def test_items_keep_their_order(self):
    self.assertEqual(list(pipeline.prefetch(range(100), 3)), [*range(100)])
    self.assertEqual(list(pipeline.prefetch([], 3)), [])
    squares = pipeline.in_order(lambda n: n * n, range(50), 4)
    self.assertEqual(list(squares), [n * n for n in range(50)])
    self.assertEqual(list(pipeline.in_order(len, [], 4)), [])

  def test_no_more_than_depth_in_advance(self):
    made = []

    def numbers():
      for n in range(10):
        made.append(n)
        yield n

    stream = pipeline.prefetch(numbers(), 2)
    for n in stream:
      self.assertLessEqual(len(made), n + 3)

  def test_two_items_run_concurrently(self):
    barrier = threading.Barrier(2, timeout=30)
    waited = pipeline.in_order(lambda n: barrier.wait() >= 0, range(4), 2)
    self.assertEqual(list(waited), [True] * 4)

  def test_errors_are_raised_in_order(self):
    def numbers():
      yield 1
      raise ValueError('no second')

    stream = pipeline.prefetch(numbers(), 5)
    self.assertEqual(next(stream), 1)
    with self.assertRaisesRegex(ValueError, 'no second'):
      next(stream)

  def test_abandoned_stream_ends_its_thread(self):
    stream = pipeline.prefetch(iter(int, 1), 2)
    next(stream)
    before = threading.active_count()
    stream.close()
    self.assertEqual(threading.active_count(), before - 1)


class ProgressTest(absltest.TestCase):
  def test_lines_show_rate_and_remaining_time(self):
    out = io.StringIO()
    with (
      contextlib.redirect_stderr(out),
      mock.patch.object(pipeline.time, 'monotonic') as clock,
    ):
      clock.return_value = 100.0
      with pipeline.Progress('Converting', 4_000_000_000) as bar:
        for second in range(1, 9):
          clock.return_value = 100.0 + second
          bar.advance(200_000_000, f'v{second}')
    self.assertEqual(
      out.getvalue(), 'Converting v5: 1.0 of 4.0 GB, 200 MB/s, 15 s left\n'
    )

  def test_rate_ignores_an_earlier_run(self):
    out = io.StringIO()
    with (
      contextlib.redirect_stderr(out),
      mock.patch.object(pipeline.time, 'monotonic') as clock,
    ):
      clock.return_value = 100.0
      with pipeline.Progress('Converting', 4_000_000_000, 2_000_000_000) as bar:
        clock.return_value = 110.0
        bar.advance(1_000_000_000, 'v')
    self.assertEqual(
      out.getvalue(), 'Converting v: 3.0 of 4.0 GB, 100 MB/s, 10 s left\n'
    )

  def test_terminal_shows_a_bar(self):
    out = io.StringIO()
    out.isatty = lambda: True
    with (
      contextlib.redirect_stderr(out),
      pipeline.Progress('Converting', 2_000_000) as bar,
    ):
      bar.advance(2_000_000, 'v')
    self.assertIn('Converting', out.getvalue())
    self.assertIn('2.0/2.0 MB', out.getvalue())


if __name__ == '__main__':
  absltest.main()
