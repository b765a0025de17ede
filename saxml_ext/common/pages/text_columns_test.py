"""Tests of tables in plain text and in terminals."""

import io

from absl.testing import absltest

from saxml_ext.common.pages import text_columns

_ROWS = [('id', 'result'), ('a', '[1] 2.5'), ('bc', '10')]


class _Terminal(io.StringIO):
  def isatty(self) -> bool:
    return True


class TablesTest(absltest.TestCase):
  def test_file_output_is_plain(self):
    file = io.StringIO()
    text_columns.show(_ROWS, file=file)
    self.assertEqual(file.getvalue(), 'id   result\na   [1] 2.5\nbc       10\n')

  def test_terminal_output_is_drawn(self):
    file = _Terminal()
    text_columns.show(_ROWS, file=file)
    text = file.getvalue()
    self.assertIn('[1] 2.5', text)
    self.assertIn('──', text)

  def test_narrow_terminal_output_is_plain(self):
    file = _Terminal()
    rows = [('id', 'result'), ('a', 'x' * 300)]
    text_columns.show(rows, file=file)
    self.assertIn('x' * 300, file.getvalue())

  def test_columns_are_left_aligned(self):
    file = io.StringIO()
    text_columns.show(_ROWS, left=(0, 1), file=file)
    self.assertIn('bc  10\n', file.getvalue())


if __name__ == '__main__':
  absltest.main()
