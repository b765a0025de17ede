import io

from absl.testing import absltest
from rich import console as console_lib

from benchmarks.console import widths


def _row(engine: str, beams: int, seconds: float) -> dict:
  return {
    'engine': engine,
    'dtype': 'int8',
    'beams': beams,
    'cpu_seconds_per_request': seconds,
    'tokens_per_cpu_second': 32 / seconds,
    'peak_rss_bytes': 500 << 20,
  }


_ROWS = [
  _row('ct2', 4, 0.5),
  _row('ours', 4, 0.25),
  _row('ct2', 100, 20.0),
  _row('ours', 100, 2.5),
  _row('ours', 1, 0.125),  # Greedy.
]


class WidthsTest(absltest.TestCase):
  def test_growth_of_each_engine(self):
    groups = widths.by_engine(_ROWS)
    self.assertEqual(list(groups), ['ct2 int8', 'ours int8'])
    self.assertEqual(widths.growth(groups['ct2 int8']), [1, 40])
    self.assertEqual(widths.growth(groups['ours int8']), [1, 10])

  def test_table(self):
    printed = io.StringIO()
    console_lib.Console(file=printed, width=150).print(widths.table(_ROWS))
    text = printed.getvalue()
    self.assertIn('100 beams (width x 25)', text)
    self.assertIn('2500 (x 10.0); 12.8; 500', text)


if __name__ == '__main__':
  absltest.main()
