import json
import os

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from harness.bert import features
from harness.bert.testing import tiny_set


class FeaturesTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self._dir = self.create_tempdir().full_path
    self._vocab = tiny_set.write_vocab(self._dir)
    self._tokenizer = features.tokenizer(self._vocab)

  def _convert(self, question: str, context: str) -> features.FeatureSet:
    parsed = features.Question('q', question, features.split_words(context), ())
    return features.convert([parsed], self._tokenizer)

  def test_one_window_by_hand(self):
    made = self._convert('Who sat?', 'The cats sat.')
    (feature,) = made.features
    self.assertEqual(
      feature.tokens,
      ('[CLS]', 'who', 'sat', '?', '[SEP]')
      + ('the', 'cat', '##s', 'sat', '.', '[SEP]'),
    )
    self.assertEqual(feature.words, (-1, -1, -1, -1, -1, 0, 1, 1, 2, 2, -1))
    self.assertEqual(
      feature.best_context, (False,) * 5 + (True,) * 5 + (False,)
    )
    ids = [tiny_set.VOCAB.index(token) for token in feature.tokens]
    np.testing.assert_array_equal(made.input_ids[0, :11], ids)
    self.assertEqual(made.input_ids.shape, (1, 384))
    self.assertFalse(made.input_ids[0, 11:].any())
    np.testing.assert_array_equal(made.input_mask[0], [1] * 11 + [0] * 373)
    np.testing.assert_array_equal(
      made.segment_ids[0], [0] * 5 + [1] * 6 + [0] * 373
    )
    self.assertEqual(made.lengths.tolist(), [11])
    self.assertEqual(made.input_ids.dtype, np.int64)

  def test_windows_of_a_long_paragraph(self):
    # A question of 2 tokens leaves 384 - 2 - 3 = 379 tokens for the paragraph.
    made = self._convert('Who?', 'cat ' * 700)
    self.assertEqual(made.lengths.tolist(), [384, 384, 384, 321])
    starts = [feature.words[4] for feature in made.features]
    self.assertEqual(starts, [0, 128, 256, 384])
    # The windows are [0, 379), [128, 507), [256, 635) and [384, 700). Token 253
    # is 125 tokens from the end of the first window and from the start of the
    # second. The first window wins the tie. Token 254 belongs to the second
    # window.
    owners = {
      word: [
        n
        for n, feature in enumerate(made.features)
        if word in feature.words
        and feature.best_context[feature.words.index(word)]
      ]
      for word in (0, 253, 254, 381, 382, 699)
    }
    self.assertEqual(
      owners, {0: [0], 253: [0], 254: [1], 381: [1], 382: [2], 699: [3]}
    )

  def test_a_longer_window_wins_between_equals(self):
    # The windows are [0, 379) and [128, 440). Token 253 has 125 tokens on its
    # nearer side in both, but the second window is shorter.
    made = self._convert('Who?', 'cat ' * 440)
    self.assertEqual(made.lengths.tolist(), [384, 317])
    first, second = made.features
    self.assertTrue(first.best_context[4 + 253])
    self.assertFalse(second.best_context[4 + 253 - 128])

  def test_a_longer_window_wins_although_a_shorter_one_shows_more(self):
    # The windows are [0, 379) and [128, 380). Token 254 has 124 tokens on its
    # nearer side in the first window and 125 in the second, which is 127 tokens
    # shorter.
    made = self._convert('Who?', 'cat ' * 380)
    first, second = made.features
    self.assertTrue(first.best_context[4 + 254])
    self.assertFalse(second.best_context[4 + 254 - 128])
    self.assertTrue(second.best_context[4 + 379 - 128])
    # Six more tokens around the token weigh more than a window that is 107
    # tokens longer.
    made = self._convert('Who?', 'cat ' * 400)
    first, second = made.features
    self.assertFalse(first.best_context[4 + 256])
    self.assertTrue(second.best_context[4 + 256 - 128])

  def test_a_long_question_is_cut(self):
    made = self._convert('cat ' * 70, 'mat')
    self.assertEqual(made.features[0].tokens.count('cat'), 64)

  @parameterized.parameters(
    # The reference's tokenizer in Python splits final sigma, accents, CJK,
    # control characters, unusual blanks and special tokens like this.
    ('ΣΑΣ', ['σας']),
    ('Naïve İe\u0301', ['naive', 'ie']),
    ('a北京b', ['a', '北', '京', 'b']),
    ('a\u200bb\x07\ufffd c\u00a0d\u2003e', ['ab', 'c', 'd', 'e']),
    ('$5.50—“x”', ['$', '5', '.', '50', '—', '“', 'x', '”']),
  )
  def test_basic_tokens(self, text, expected):
    self.assertEqual(self._tokenizer.basic_tokenizer.tokenize(text), expected)

  def test_special_tokens_in_the_text_stay(self):
    self.assertEqual(
      self._tokenizer.tokenize('cat[SEP] X'), ['cat', '[SEP]', 'x']
    )

  def test_takes_the_first_examples_and_their_questions(self):
    path = tiny_set.write_questions(self._dir, sentences=100)
    whole = features.load(path, self._vocab)
    self.assertEqual([f.question for f in whole.features], [0] * 4 + [1])
    part = features.load(path, self._vocab, 2)
    self.assertLen(part, 2)
    self.assertEqual([q.id for q in part.questions], ['q0'])
    np.testing.assert_array_equal(part.input_ids, whole.input_ids[:2])

  def test_too_many_examples(self):
    path = tiny_set.write_questions(self._dir)
    with self.assertRaisesRegex(ValueError, '3 examples were .* has 2. Pass'):
      features.load(path, self._vocab, 3)

  def test_missing_vocabulary(self):
    with self.assertRaisesRegex(FileNotFoundError, '/nowhere.*vocab.txt'):
      features.tokenizer('/nowhere')

  def test_a_file_that_is_no_vocabulary(self):
    path = os.path.join(self._dir, 'other.txt')
    with open(path, 'w', encoding='utf-8') as file:
      file.write('cat\n')
    with self.assertRaisesRegex(ValueError, r'no line \[CLS\] or \[SEP\]'):
      features.tokenizer(path)


class SquadTest(parameterized.TestCase):
  def test_reads_in_order(self):
    path = tiny_set.write_questions(self.create_tempdir().full_path)
    first, second = features.read_questions(path)
    self.assertEqual(first.id, 'q0')
    self.assertEqual(first.text, 'Who sat?')
    self.assertEqual(first.words, ('The', 'cat', 'sat', 'on', 'the', 'mat.'))
    self.assertEqual(second.answers, ('the mat',))

  def test_only_the_blanks_of_the_reference_separate_words(self):
    self.assertEqual(
      features.split_words(' a\tb\r\nc\u202fd e\u00a0f\u2003g '),
      ('a', 'b', 'c', 'd', 'e\u00a0f\u2003g'),
    )

  @parameterized.parameters(
    ('[', 'is not JSON'),
    ('[]', 'does not have the schema of SQuAD'),
    ('{"data": [{"title": "x"}]}', "KeyError.'paragraphs'"),
    ('{"data": []}', 'has no questions'),
  )
  def test_refuses(self, text, message):
    path = os.path.join(self.create_tempdir().full_path, 'squad.json')
    with open(path, 'w', encoding='utf-8') as file:
      file.write(text)
    with self.assertRaisesRegex(ValueError, message):
      features.read_questions(path)

  @parameterized.parameters(
    ({'id': 'q0'}, "two questions with the id 'q0'"),
    ({'id': 5}, 'is no text'),
    ({'question': ''}, 'is no text'),
    ({'answers': [{'text': None}]}, 'is no text'),
  )
  def test_refuses_questions(self, change, message):
    path = tiny_set.write_questions(self.create_tempdir().full_path)
    with open(path, encoding='utf-8') as file:
      content = json.load(file)
    content['data'][-1]['paragraphs'][-1]['qas'][-1] |= change
    with open(path, 'w', encoding='utf-8') as file:
      json.dump(content, file)
    with self.assertRaisesRegex(ValueError, message):
      features.read_questions(path)

  def test_missing_questions_are_reported_with_the_commands(self):
    with self.assertRaisesRegex(FileNotFoundError, 'curl .*dev-v1.1.json'):
      features.read_questions('/nowhere/dev-v1.1.json')

  def test_questions_need_no_answers(self):
    path = tiny_set.write_questions(self.create_tempdir().full_path)
    with open(path, encoding='utf-8') as file:
      content = json.load(file)
    del content['data'][0]['paragraphs'][0]['qas'][0]['answers']
    with open(path, 'w', encoding='utf-8') as file:
      json.dump(content, file)
    self.assertEqual(features.read_questions(path)[0].answers, ())


if __name__ == '__main__':
  absltest.main()
