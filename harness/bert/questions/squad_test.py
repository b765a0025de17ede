import json
import os

from absl.testing import absltest
from absl.testing import parameterized

from harness.bert.questions import squad
from harness.bert.testing import tiny_set


class SquadTest(parameterized.TestCase):
  def test_reads_in_order(self):
    path = tiny_set.write_questions(self.create_tempdir().full_path)
    first, second = squad.load(path)
    self.assertEqual(first.id, 'q0')
    self.assertEqual(first.text, 'Who sat?')
    self.assertEqual(first.words, ('The', 'cat', 'sat', 'on', 'the', 'mat.'))
    self.assertEqual(second.answers, ('the mat',))

  def test_only_the_blanks_of_the_reference_separate_words(self):
    self.assertEqual(
      squad.split_words(' a\tb\r\nc\u202fd e\u00a0f\u2003g '),
      ('a', 'b', 'c', 'd', 'e\u00a0f\u2003g'),
    )

  @parameterized.parameters(
    ('[', 'is not JSON'),
    ('[]', 'does not have the schema of SQuAD'),
    ('{"data": [{"title": "x"}]}', "KeyError.'paragraphs'"),
    ('{"data": []}', 'holds no question'),
  )
  def test_refuses(self, text, message):
    path = os.path.join(self.create_tempdir().full_path, 'squad.json')
    with open(path, 'w', encoding='utf-8') as file:
      file.write(text)
    with self.assertRaisesRegex(ValueError, message):
      squad.load(path)

  def test_says_how_to_get_the_questions(self):
    with self.assertRaisesRegex(FileNotFoundError, 'curl .*dev-v1.1.json'):
      squad.load('/nowhere/dev-v1.1.json')

  def test_questions_need_no_answers(self):
    path = tiny_set.write_questions(self.create_tempdir().full_path)
    with open(path, encoding='utf-8') as file:
      content = json.load(file)
    del content['data'][0]['paragraphs'][0]['qas'][0]['answers']
    with open(path, 'w', encoding='utf-8') as file:
      json.dump(content, file)
    self.assertEqual(squad.load(path)[0].answers, ())


if __name__ == '__main__':
  absltest.main()
