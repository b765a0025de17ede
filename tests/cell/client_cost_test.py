"""Runs a small version of the measurement of LoadGen's client."""

from absl.testing import absltest

from serve import progress
from tests.cell import client_cost


class ClientCostTest(absltest.TestCase):
  def test_every_row_is_measured(self):
    figures = client_cost.measure(
      100.0, 1.0, 1, self.create_tempdir().full_path, progress.Progress()
    )
    self.assertCountEqual(figures, [row.system for row in client_cost.ROWS])
    for figure in figures.values():
      self.assertGreater(figure, 0)

  def test_rows_report_what_they_add(self):
    figures = {row.system: 100.0 for row in client_cost.ROWS}
    text = client_cost.render(figures | {'instant': 112.5, 'cell': 400.0})
    lines = text.splitlines()
    self.assertRegex(lines[1], r'instant system +112\.5 us .* \+12\.5 us$')
    self.assertRegex(lines[3], r'Sax cell +400\.0 us .* \+287\.5 us$')
    self.assertEqual(lines[-1], 'client 12.5 us, at most 33: met')

  def test_expensive_client_is_reported(self):
    figures = {row.system: 100.0 for row in client_cost.ROWS}
    text = client_cost.render(figures | {'instant': 140.0})
    self.assertEndsWith(text, 'client 40.0 us, at most 33: MISSED')


if __name__ == '__main__':
  absltest.main()
