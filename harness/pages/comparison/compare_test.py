"""Tests of the page that compares results."""

import os

from absl.testing import absltest

from harness.pages.comparison import compare
from harness.pages.comparison import official_results
from harness.pages.comparison import records
from harness.pages.testing import jobs
from harness.pages.testing import published
from harness.pages.testing import reading

_ATTACK = '</script><img src=x onerror=alert(1)>'


class CompareTest(absltest.TestCase):
  def published(self, *rows):
    path = os.path.join(self.create_tempdir().full_path, 'summary.json')
    return official_results.read(published.write_json(path, list(rows)))

  def ours(self, **changes):
    return records.of_entry(jobs.entry(**changes), 512, None)

  def test_ours_stand_before_the_published(self):
    page = reading.Page(
      compare.render([*self.published(published.json_row()), self.ours()])
    )
    self.assertEqual([r['ours'] for r in page.data['records']], [True, False])
    self.assertContainsSubset(
      ['caveat', 'choose', 'bars', 'table', 'results', 'filters'], page.ids
    )
    self.assertIn('1 of this harness', page.texts)
    self.assertIn('1 published', page.texts)
    self.assertIn('need not be comparable', page.text)
    self.assertEqual(page.outside, [])
    self.assertLen(page.scripts, 3)

  def test_the_table_tells_all(self):
    page = reading.Page(
      compare.render([self.ours(), *self.published(published.json_row())])
    )
    for text in ('Tiny box (cell)', 'Rack, large', '20,000', 'Queries/s'):
      self.assertIn(text, page.texts)
    self.assertIn('F1 90.36', page.texts)
    self.assertEqual(page.tags.count('tr'), 3)

  def test_filters_offer_what_is_there(self):
    rows = [published.json_row(version=v) for v in ('v4.0', 'v4.1')]
    page = reading.Page(compare.render(self.published(*rows)))
    self.assertContainsSubset(
      ['v4.0', 'v4.1', 'bert-99', 'Server'], page.options
    )
    self.assertNotIn('Offline', page.options)

  def test_it_opens_with_our_benchmark(self):
    found = self.published(published.json_row())
    page = reading.Page(compare.render([self.ours(), *found]))
    self.assertEqual(page.selected[0], 'gptj-99')
    self.assertEqual(set(page.selected[1:4]), {''})
    page = reading.Page(compare.render(found))
    self.assertEqual(page.selected[0], '')

  def test_columns_without_a_figure_are_left_out(self):
    texts = reading.Page(compare.render([self.ours(energy={})])).texts
    self.assertNotIn('J per sample', texts)
    self.assertNotIn('Cost per 1,000', texts)
    texts = reading.Page(compare.render([self.ours()])).texts
    self.assertIn('J per sample', texts)

  def test_ours_alone_need_no_caveat(self):
    text = reading.Page(compare.render([self.ours()])).text
    self.assertIn('none was submitted or reviewed', text)
    self.assertNotIn('need not be comparable', text)

  def test_all_is_escaped(self):
    row = published.json_row(
      System=_ATTACK, Submitter=_ATTACK, Accuracy=_ATTACK, Platform=_ATTACK
    )
    page = reading.Page(
      compare.render([*self.published(row), self.ours(system=_ATTACK)])
    )
    self.assertNotIn('img', page.tags)
    self.assertEqual(page.data['records'][1]['system'], _ATTACK)
    self.assertLen(page.scripts, 3)

  def test_nothing_to_compare(self):
    with self.assertRaisesRegex(ValueError, 'no result'):
      compare.render([])


if __name__ == '__main__':
  absltest.main()
