"""Tests of markup."""

from absl.testing import absltest

from harness.pages import markup
from harness.pages.testing import reading


class MarkupTest(absltest.TestCase):
  def test_text_is_escaped_once(self):
    inner = markup.element('b', '<&"')
    self.assertEqual(inner, '<b>&lt;&amp;&quot;</b>')
    self.assertEqual(
      markup.element('p', inner, title='"'),
      '<p title="&quot;"><b>&lt;&amp;&quot;</b></p>',
    )

  def test_data_cannot_end_its_element(self):
    text = '</script><!--\u2028&'
    encoded = markup.data('x', {'a': text})
    self.assertNotIn('</script><', encoded)
    self.assertNotIn('<!--', encoded)
    self.assertEqual(reading.Page(encoded).data, {'x': {'a': text}})

  def test_data_is_strict_json(self):
    with self.assertRaises(ValueError):
      markup.data('x', float('nan'))
    page = reading.Page(markup.data('x', [1, None]))
    self.assertEqual(page.data, {'x': [1, None]})

  def test_a_document_loads_nothing(self):
    page = reading.Page(
      markup.document('<t>', markup.element('main', 'x'), ['charts.js'], True)
    )
    self.assertEqual(page.outside, [])
    self.assertIn('<t>', page.texts)
    self.assertLen(page.scripts, 2)
    self.assertIn('plotly.js', page.scripts[0][:200])

  def test_numbers(self):
    self.assertEqual(markup.number(1234567.8), '1,234,568')
    self.assertEqual(markup.number(0.0012345678), '0.001235')
    self.assertEqual(markup.number(None), '–')

  def test_tables_name_their_rows_and_columns(self):
    text = markup.table(('a', 'b'), [('x', 1), ('y', 2)], 'title')
    self.assertEqual(text.count('scope="col"'), 2)
    self.assertEqual(text.count('scope="row"'), 2)
    self.assertIn('<caption>title</caption>', text)

  def test_pairs_flatten_tables_within(self):
    text = markup.pairs({'a': {'b': {'c': 1}, 'd': ''}, 'e': [2, '<']}, 'x')
    texts = reading.Page(text).texts
    self.assertEqual(texts[3:], ['a.b.c', '1', 'a.d', '–', 'e', '[2, "<"]'])
    texts = reading.Page(markup.pairs({'a': ['x', '<']}, 'x')).texts
    self.assertEqual(texts[3:], ['a', 'x', '<'])


if __name__ == '__main__':
  absltest.main()
