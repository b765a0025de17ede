"""Runs the short forms of the rows; `report` runs the full forms.

Times do not count in the short forms, because the machine may be busy.
"""

from absl.testing import absltest
from absl.testing import parameterized

from tests.reliability import rows
from tests.reliability.results import table


class RowsTest(parameterized.TestCase):
  @parameterized.parameters('5', '8', '9', '10', 'drain', 'loadgen', 'soak')
  def test_short_form_meets_its_bounds(self, key):
    results = rows.SHORT[key](self.create_tempdir().full_path)
    self.assertNotEmpty(results)
    for figure in results:
      print(f'{figure.name}: {figure.reached} ({figure.goal})')
    self.assertEqual([f for f in results if not f.met], [])

  def test_every_row_of_the_table_has_both_forms(self):
    keys = [row.key for row in table.ROWS]
    self.assertSequenceEqual(list(rows.FULL), keys)
    self.assertSequenceEqual(list(rows.SHORT), keys)
    self.assertEqual(table.find('5').key, '5')
    with self.assertRaisesRegex(ValueError, "no row '99'. Available: 1, 2"):
      table.find('99')


if __name__ == '__main__':
  absltest.main()
