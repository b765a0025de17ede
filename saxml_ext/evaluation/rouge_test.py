import json
import os

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tokenizers

from saxml_ext.evaluation import rouge


def _tokenizer() -> tokenizers.Tokenizer:
  words = ['<eos>', 'the', 'cat', 'sat', 'on', 'mat', 'dogs', 'ran']
  vocab = {word: index for index, word in enumerate(words)}
  tokenizer = tokenizers.Tokenizer(
    tokenizers.models.WordLevel(vocab, unk_token='<eos>')
  )
  tokenizer.add_special_tokens(['<eos>'])
  return tokenizer


def _entry(index: int, tokens: list[int], dtype: str = 'int64') -> dict:
  data = np.asarray(tokens, dtype).tobytes().hex()
  return {'seq_id': 0, 'qsl_idx': index, 'data': data}


class RougeTest(parameterized.TestCase):
  def _log(self, entries: list[dict]) -> str:
    path = os.path.join(self.create_tempdir().full_path, 'log.json')
    with open(path, 'w', encoding='utf-8') as file:
      json.dump(entries, file)
    return path

  def test_scores_match_figures_computed_by_hand(self):
    scores = rouge.score_texts(
      ['the cat sat', 'nothing alike'], ['the cat ran off', 'other words']
    )
    # The first pair shares 2 of 3 and 2 of 4 words, so F = 2*2/(3+4) = 4/7. It
    # shares 1 of 2 and 1 of 3 bigrams, so F = 2/5. Its longest common
    # subsequence is 2, so F = 4/7. The second pair scores 0.
    self.assertEqual(scores.rouge1, round(100 * 4 / 7 / 2, 4))
    self.assertEqual(scores.rouge2, 20.0)
    self.assertEqual(scores.rougeL, round(100 * 4 / 7 / 2, 4))
    self.assertEqual(scores.gen_len, len('the cat sat') + len('nothing alike'))
    self.assertEqual(scores.gen_num, 2)

  def test_stems_words_and_strips_texts(self):
    scores = rouge.score_texts(['  running dogs \n'], ['runs dog'])
    self.assertEqual(scores.rouge1, 100.0)
    self.assertEqual(scores.gen_len, len('running dogs'))

  def test_result_line_has_plain_numbers(self):
    line = rouge.score_texts(['a b c'], ['a b d']).line
    self.assertRegex(line, r"'rouge1':\s([\d.]+).*'gen_len': 5, 'gen_num': 1")
    self.assertNotIn('np.', line)

  def test_workers_give_the_same_scores(self):
    predictions = ['the cat sat', 'a b', 'on the mat', 'dogs ran', 'x y z']
    references = ['the cat', 'b a', 'on a mat', 'dog runs', 'z']
    self.assertEqual(
      rouge.score_texts(predictions, references, parallel_from=1),
      rouge.score_texts(predictions, references),
    )

  @parameterized.parameters('int32', 'int64')
  def test_tokens_of_both_widths_are_read(self, dtype):
    path = self._log([_entry(3, [1, 2, 70000], dtype), _entry(0, [], dtype)])
    self.assertEqual(
      rouge.read_accuracy_log(path, dtype), {3: (1, 2, 70000), 0: ()}
    )

  def test_first_answer_of_a_sample_counts(self):
    path = self._log([_entry(1, [1]), _entry(0, [2]), _entry(1, [3])])
    self.assertEqual(rouge.read_accuracy_log(path, 'int64'), {1: (1,), 0: (2,)})

  def test_wrong_token_width_is_refused(self):
    path = self._log([_entry(0, [1, 2], 'int32')])
    with self.assertRaisesRegex(ValueError, 'sample 0 has the id 8589934593'):
      rouge.read_accuracy_log(path, 'int64')
    path = self._log([_entry(0, [1], 'int32')])
    with self.assertRaisesRegex(ValueError, '4 bytes .* not a multiple'):
      rouge.read_accuracy_log(path, 'int64')

  def test_float32_token_ids_are_read(self):
    path = self._log([_entry(0, [1, 50256], 'float32')])
    self.assertEqual(rouge.read_accuracy_log(path, 'float32'), {0: (1, 50256)})
    for dtype in ('int32', 'int64'):
      with self.assertRaisesRegex(ValueError, 'Choose the type'):
        rouge.read_accuracy_log(path, dtype)
    path = self._log([_entry(0, [1, 2, 3, 4])])
    with self.assertRaisesRegex(ValueError, 'when read as float32'):
      rouge.read_accuracy_log(path, 'float32')

  def test_int64_ids_read_as_int32_are_reported(self):
    path = self._log([_entry(0, [7, 2]), _entry(1, [])])
    with self.assertRaisesRegex(ValueError, 'is probably int64'):
      rouge.read_accuracy_log(path, 'int32')

  @parameterized.parameters(
    ([{'qsl_idx': 0}],),
    ([{'qsl_idx': 0, 'data': 'xy'}],),
    (['a'],),
    ({'a': 1},),
  )
  def test_invalid_log_is_refused(self, entries):
    with self.assertRaisesRegex(ValueError, 'is not a LoadGen log: entry 0'):
      rouge.read_accuracy_log(self._log(entries), 'int64')

  def test_performance_log_is_refused(self):
    with self.assertRaisesRegex(ValueError, 'accuracy mode'):
      rouge.read_accuracy_log(self._log([]), 'int64')

  def test_special_tokens_are_not_scored(self):
    scores = rouge.score_tokens(
      {1: (1, 2, 3, 0, 0), 0: (6, 7)},
      ['dogs ran', 'the cat sat'],
      _tokenizer(),
    )
    self.assertEqual(scores.rouge1, 100.0)
    self.assertEqual(scores.gen_len, len('dogs ran') + len('the cat sat'))

  def test_sentences_give_rouge_lsum_and_count_line_breaks(self):
    texts = ['the cat sat.  dogs ran', 'dogs ran. the cat sat']
    plain = rouge.score_texts(texts[:1], texts[1:])
    self.assertIsNone(plain.rougeLsum)
    self.assertNotIn('rougeLsum', plain.line)
    whole = rouge.score_texts(
      texts[:1],
      texts[1:],
      split=lambda text: [part.strip() for part in text.split('.')],
    )
    # The sentences are the same, in another order.
    self.assertEqual(whole.rougeLsum, 100.0)
    self.assertEqual(
      (whole.rouge1, whole.rouge2, whole.rougeL),
      (plain.rouge1, plain.rouge2, plain.rougeL),
    )
    self.assertEqual(whole.gen_len, len('the cat sat\ndogs ran'))
    self.assertRegex(
      whole.line, "'rougeL': 60.0, 'rougeLsum': 100.0, 'gen_len'"
    )

  def test_cleaned_answers_are_shorter_and_may_score_better(self):
    vocab = {'<eos>': 0, 'do': 1, "n't": 2, 'go': 3, '.': 4}
    tokenizer = tokenizers.Tokenizer(
      tokenizers.models.WordLevel(vocab, unk_token='<eos>')
    )
    as_is, cleaned = (
      rouge.score_tokens({0: (1, 2, 3, 4)}, ["don't go."], tokenizer, clean_up)
      for clean_up in (False, True)
    )
    self.assertEqual(cleaned.gen_len, len("don't go."))
    self.assertEqual(as_is.gen_len, len("do n't go ."))
    self.assertEqual(cleaned.rouge1, 100.0)
    self.assertLess(as_is.rouge1, 100.0)

  def test_tokenizer_of_another_model_is_refused(self):
    answers = {0: (1, 2), 1: (3, 128000), 2: (8,)}
    with self.assertRaisesRegex(ValueError, '2 of 3 answers .* the 8 of the'):
      rouge.score_tokens(answers, ['the cat'] * 3, _tokenizer())
    # A model may have a few more ids than its tokenizer.
    known = answers | {1: (3, 4)}
    scores = rouge.score_tokens(known, ['the cat'] * 3, _tokenizer())
    self.assertEqual(scores.gen_num, 3)

  def test_answers_of_another_dataset_are_refused(self):
    with self.assertRaisesRegex(
      ValueError, 'answer for sample 2.*only 1 articles'
    ):
      rouge.score_tokens({2: (1,)}, ['the cat'], _tokenizer())


if __name__ == '__main__':
  absltest.main()
