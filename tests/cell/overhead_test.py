"""Runs a small version of the measurement of the cell's overhead."""

from absl.testing import absltest

from serve import progress
from tests.cell import overhead

# A request through the cell takes 2 to 3 times as long as one to the bare
# server, also on a busy machine. A pause or a poll in the path of requests
# would take several times that.
_MOST_TIMES_THE_FLOOR = 15


class OverheadTest(absltest.TestCase):
  def test_cell_and_lower_bound_are_measured(self):
    # The measurement checks the answers of more than a hundred different
    # prompts.
    prompts = [[i % 7 + 1] * (20 + i) for i in range(150)]
    load = overhead.Load(
      rounds=2, sequential=60, burst=300, concurrencies=(8, 64)
    )
    figures = overhead.measure(
      prompts, load, self.create_tempdir().full_path, progress.Progress()
    )
    self.assertEqual(set(figures), {overhead.CELL, overhead.ECHO})
    for figure in figures.values():
      self.assertEqual(figure.rounds, 2)
      self.assertGreater(figure.p50_ms, 0)
      self.assertLessEqual(figure.p50_ms, figure.p90_ms)
      self.assertLessEqual(figure.p90_ms, figure.p99_ms)
      self.assertEqual(list(figure.bursts), [8, 64])
      for burst in figure.bursts.values():
        self.assertGreater(burst.requests_per_second, 0)
        self.assertGreater(burst.server_us, 0)
        self.assertGreater(burst.client_us, 0)
    self.assertLess(
      figures[overhead.CELL].p50_ms,
      _MOST_TIMES_THE_FLOOR * figures[overhead.ECHO].p50_ms,
    )

  def test_wrong_answers_are_reported(self):
    load = overhead.Load(rounds=1, sequential=1, burst=1, concurrencies=(1,))
    with self.assertRaisesRegex(ValueError, "got '7' instead of '07'"):
      overhead.measure(
        [['07']], load, self.create_tempdir().full_path, progress.Progress()
      )


if __name__ == '__main__':
  absltest.main()
