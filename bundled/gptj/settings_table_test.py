"""Tests of the table that compares all ways to quantize."""

import os

from absl.testing import absltest

from bundled.gptj import settings_table
from converters.quantize import sample_texts
from converters.testing import compiled
from converters.testing import small_pax
from converters.testing import unsynced


class SettingsTableTest(absltest.TestCase):
  def test_rows(self):
    self.enter_context(unsynced.files())
    self.enter_context(compiled.once())
    root = self.create_tempdir().full_path
    source = small_pax.write(os.path.join(root, 'float'))
    calibration, articles = (
      sample_texts.load_articles(
        small_pax.write_articles(os.path.join(root, name), 4, seed)
      )
      for seed, name in enumerate(('cal', 'eval'))
    )
    settings = {
      label: settings_table.SETTINGS[label]
      for label in ('plain rounding', 'calibrated')
    }
    lines = list(
      settings_table.lines(source, calibration, articles, root, settings)
    )
    rows = [[cell.strip() for cell in x.split('|')[1:-1]] for x in lines]
    self.assertEqual({len(row) for row in rows}, {7})
    self.assertEqual(
      [row[0] for row in rows],
      ['`int8`', '---', 'float32', 'plain rounding', 'calibrated'],
    )
    exact, plain, calibrated = rows[2:]
    self.assertEqual(exact[4:], ['', '4', ''])
    self.assertRegex(plain[4], r'^\d+\.\d{3} %$')
    self.assertLess(float(calibrated[6]), float(plain[6]) / 2)
    self.assertGreater(float(calibrated[6]), 0)
    self.assertEqual(sorted(os.listdir(root)), ['cal', 'eval', 'float'])


if __name__ == '__main__':
  absltest.main()
