"""Tests training questions as token ids."""

from collections.abc import Sequence

from absl.testing import absltest
import tokenizers

from bundled.bert import passages
from bundled.bert import questions
from bundled.bert import rows
from harness.benchmarks import bert


def _text(ids: Sequence[int]) -> str:
  pieces = tokenizers.BertWordPieceTokenizer(
    bert.BUNDLE.vocabulary, lowercase=True
  )
  words = ' '.join(pieces.id_to_token(i) for i in ids).replace(' ##', '')
  return ''.join(words.split())


def _plain(text: str) -> str:
  return ''.join(text.lower().split())


class RowsTest(absltest.TestCase):
  def test_answers_are_at_the_positions_of_the_row(self):
    reader = rows.Reader(bert.BUNDLE.vocabulary, 384)
    for index in range(30):
      passage = passages.write_passage('train', index)
      drawn = questions.ask('train', index, passage, 4)
      for row, question in zip(reader.rows(index), drawn, strict=True):
        self.assertEqual(questions.topics()[row.topic], question.topic)
        self.assertEqual(
          _text(row.ids[: row.first])[5:-5], _plain(question.text)
        )
        if row.start:
          self.assertGreaterEqual(row.start, row.first)
          answer = _text(row.ids[row.start : row.end + 1])
          self.assertEqual(answer, _plain(question.answer))
          self.assertEqual(row.tags[row.start], 1 + 2 * row.topic)
          inside = row.tags[row.start + 1 : row.end + 1]
          self.assertEqual(set(inside) - {2 + 2 * row.topic}, set())

  def test_windows_of_long_passages(self):
    reader = rows.Reader(bert.BUNDLE.vocabulary, 100)
    read = [row for index in range(40) for row in reader.rows(index)]
    self.assertLessEqual(max(len(row.ids) for row in read), 100)
    empty = [row for row in read if not row.start]
    self.assertTrue(all(row.end == 0 for row in empty))
    self.assertBetween(len(empty) / len(read), 0.02, 0.3)
    for row in read:
      self.assertLen(row.tags, len(row.ids))
      self.assertEqual(_text(row.ids[:1]), '[CLS]')
      self.assertEqual(_text(row.ids[-1:]), '[SEP]')


if __name__ == '__main__':
  absltest.main()
