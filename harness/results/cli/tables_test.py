import io

from absl.testing import absltest

from harness.results.cli import tables

_ROWS = [('id', 'result'), ('a', '[1] 2.5'), ('bc', '10')]


class _Terminal(io.StringIO):
  def isatty(self) -> bool:
    return True


class TablesTest(absltest.TestCase):
  def test_plain_in_a_file(self):
    file = io.StringIO()
    tables.show(_ROWS, file)
    self.assertEqual(file.getvalue(), 'id   result\na   [1] 2.5\nbc       10\n')

  def test_drawn_on_a_terminal(self):
    file = _Terminal()
    tables.show(_ROWS, file)
    text = file.getvalue()
    self.assertIn('[1] 2.5', text)
    self.assertIn('──', text)


if __name__ == '__main__':
  absltest.main()
