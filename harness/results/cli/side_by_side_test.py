from absl.testing import absltest

from harness.results import entry
from harness.results.cli import side_by_side
from harness.results.testing import entries

_FAST = entries.make(
  parameters={'params': 'B'},
  performance=entry.Performance(
    True,
    'samples_per_second',
    17.0,
    10.0,
    170,
    tokens_per_second=34.0,
    latency_ns={'99.00': 5e8},
  ),
)
_SERVER = entries.make(
  scenario='Server',
  performance=entry.Performance(False, 'queries_per_second', 8.5, 10.0, 85),
  accuracy=None,
)


class SideBySideTest(absltest.TestCase):
  def _rows(self, *compared: entry.Entry) -> dict[str, tuple[str, ...]]:
    return {row[0]: row[1:] for row in side_by_side.rows(compared)}

  def test_figures_of_one_kind_have_ratios(self):
    first = entries.make()
    rows = self._rows(first, _FAST)
    self.assertEqual(rows[''], (first.id, _FAST.id))
    self.assertEqual(
      rows['result'], ('8.500 samples/s', '17.000 samples/s (2.000x)')
    )
    self.assertEqual(
      rows['p99 latency'], ('1000.000 ms', '500.000 ms (0.500x)')
    )
    self.assertEqual(rows['tokens/s'], ('-', '34.0'))
    self.assertEqual(rows['ROUGE-1'], ('40.5000', '40.5000 (1.000x)'))
    self.assertNotIn('F1', rows)
    self.assertNotIn('p50 latency', rows)

  def test_figures_of_different_kinds_have_none(self):
    rows = self._rows(entries.make(), _SERVER)
    self.assertEqual(rows['result'], ('8.500 samples/s', '8.500 queries/s'))
    self.assertEqual(rows['valid'], ('VALID', 'INVALID'))
    self.assertEqual(rows['ROUGE-1'], ('40.5000', '-'))

  def test_first_without_a_run(self):
    rows = self._rows(entries.make(performance=None), _FAST)
    self.assertEqual(rows['result'], ('-', '17.000 samples/s'))
    self.assertEqual(rows['valid'], ('-', 'VALID'))


if __name__ == '__main__':
  absltest.main()
