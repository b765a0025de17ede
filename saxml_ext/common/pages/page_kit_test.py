"""Tests of rendered pages."""

import pathlib

from absl.testing import absltest

from saxml_ext.common.pages import page_kit
from saxml_ext.common.pages import plotly_charts
from saxml_ext.common.pages.testing import reading


class PageKitTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._folder = pathlib.Path(self.create_tempdir().full_path)

  def _template(self, text):
    path = self._folder / 'a.html'
    path.write_text(text, 'utf-8')
    return path

  def _render(self, text, **data):
    return page_kit.render(self._template(text), **data)

  def test_text_is_escaped_once(self):
    text = self._render(
      '{% set inner %}<b>{{ x }}</b>{% endset %}<p title="{{ x }}">{{ inner }}'
      '</p>',
      x='<&"',
    )
    self.assertEqual(
      text, '<p title="&lt;&amp;&#34;"><b>&lt;&amp;&#34;</b></p>'
    )

  def test_data_cannot_end_its_element(self):
    text = '</script><!--\u2028&'
    encoded = self._render('{{ parts.data("x", x) }}', x={'a': text})
    self.assertNotIn('</script><', encoded)
    self.assertNotIn('<!--', encoded)
    self.assertEqual(reading.Page(encoded).data, {'x': {'a': text}})

  def test_data_is_strict_json(self):
    template = '{{ parts.data("x", x) }}'
    with self.assertRaises(ValueError):
      self._render(template, x=float('nan'))
    page = reading.Page(self._render(template, x=[1, None]))
    self.assertEqual(page.data, {'x': [1, None]})

  def test_a_document_loads_nothing(self):
    template = self._template(
      '{% extends "charts.html" %}{% block title %}{{ t }}{% endblock %}'
      '{% block header %}{% endblock %}{% block main %}x{% endblock %}'
    )
    page = reading.Page(plotly_charts.render(template, t='<t>'))
    self.assertEqual(page.outside, [])
    self.assertIn('<t>', page.texts)
    self.assertLen(page.scripts, 2)
    self.assertIn('plotly.js', page.scripts[0][:200])

  def test_undefined_template_variable_is_an_error(self):
    with self.assertRaisesRegex(Exception, "'x' is undefined"):
      self._render('{{ x }}')

  def test_numbers_are_formatted(self):
    self.assertEqual(page_kit.number(1234567.8), '1,234,568')
    self.assertEqual(page_kit.number(0.0012345678), '0.001235')
    self.assertEqual(page_kit.number(None), '–')

  def test_tables_name_their_rows_and_columns(self):
    text = self._render(
      '{{ parts.table(["a", "b"], [("x", 1), ("y", 2)], "title") }}'
    )
    self.assertEqual(text.count('scope="col"'), 2)
    self.assertEqual(text.count('scope="row"'), 2)
    self.assertIn('<caption>title</caption>', text)

  def test_nested_tables_are_flattened_to_pairs(self):
    template = '{{ parts.pairs(x, "x") }}'
    values = {'a': {'b': {'c': 1}, 'd': ''}, 'e': [2, '<']}
    texts = reading.Page(self._render(template, x=values)).texts
    self.assertEqual(texts[3:], ['a.b.c', '1', 'a.d', '–', 'e', '[2, "<"]'])
    texts = reading.Page(self._render(template, x={'a': ['x', '<']})).texts
    self.assertEqual(texts[3:], ['a', 'x', '<'])


if __name__ == '__main__':
  absltest.main()
