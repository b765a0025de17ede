"""Tests tables against recorded ones."""

from absl.testing import absltest
from absl.testing import parameterized

from saxml_ext.client.cli import go_flags
from saxml_ext.client.cli import text_table
from saxml_ext.common.testing import golden


class RecordedTest(absltest.TestCase):
  def test_generate_tables(self):
    checked = 0
    for row in golden.load('saxutil_tables.json'):
      if 'results' not in row:
        continue
      cells = [
        (text, go_flags.general(float(score))) for text, score in row['results']
      ]
      with self.subTest(row['label']):
        got = text_table.render(['generate', 'Score'], cells)
        self.assertEqual(got, row['stdout'])
        checked += 1
    self.assertEqual(checked, 12)

  def test_embed_tables(self):
    checked = 0
    for row in golden.load('saxutil_tables.json'):
      if not row['label'].startswith('embed: '):
        continue
      text = row['argv'][-1]
      numbers = ', '.join(go_flags.general(float(n)) for n in text.split())
      with self.subTest(row['label']):
        got = text_table.render(['Text', 'Embedding'], [(text, numbers)])
        self.assertEqual(got, row['stdout'])
        checked += 1
    self.assertEqual(checked, 3)


class TextTableTest(parameterized.TestCase):
  def body(self, *rows: tuple[str, ...]) -> list[str]:
    return text_table.render(['a_b.c', 'D'], rows).splitlines()[3:-1]

  def test_header(self):
    got = text_table.render(['# of Replicas', '(Selected) Addr'], [])
    self.assertEqual(got.splitlines()[1], '| # OF REPLICAS | (SELECTED) ADDR |')
    self.assertEqual(
      text_table.render(['a_b.c'], []).splitlines()[1], '| A B C |'
    )

  @parameterized.parameters(
    ('12', True),
    ('-1.5', True),
    ('1,234.5', True),
    ('1E-05', False),
    ('NaN', False),
    ('45%', False),
    ('1,23', False),
    ('+5', False),
  )
  def test_numbers_are_right_aligned(self, text: str, is_number: bool):
    (line,) = self.body((text, ''))
    cell = line.split('|')[1]
    self.assertEqual(cell.endswith(text + ' '), is_number or len(text) == 5)

  def test_short_lines_are_filled_to_the_widest(self):
    self.assertEqual(
      self.body(('one\ntwo', 'x')), ['| one   | x |', '| two   |   |']
    )
    # This is the output of stock saxutil for the same suffix.
    self.assertEqual(
      self.body(('a\nlonger b\n\nc', 'x')),
      ['| a longer | x |', '| b  c     |   |'],
    )

  def test_a_line_longer_than_the_longest_word_can_be_cheaper(self):
    # A line with "ab" alone would leave 398 columns unused.
    long = 'y' * 400
    got = self.body((f'ab {long} z', 'x'))
    self.assertEqual(
      [line.split('|')[1].strip() for line in got], [f'ab {long}', 'z']
    )

  def test_long_text_is_wrapped(self):
    got = self.body(('a\n' + 'b' * 20 + ' ' + 'c' * 20, ''))
    self.assertEqual(
      [line.split('|')[1].strip() for line in got],
      ['a ' + 'b' * 20, 'c' * 20],
    )

  def test_more_cells_than_titles(self):
    got = text_table.render(['a'], [('x', '1'), ('y', '', '2')])
    self.assertEqual(
      got,
      '+---+---+---+\n'
      '| A |   |   |\n'
      '+---+---+---+\n'
      '| x | 1 |   |\n'
      '| y |   | 2 |\n'
      '+---+---+---+\n',
    )

  @parameterized.parameters(('abc', 3), ('日本', 4), ('e\u0301', 1), ('\t', 0))
  def test_display_width(self, text: str, width: int):
    self.assertEqual(text_table.display_width(text), width)


if __name__ == '__main__':
  absltest.main()
