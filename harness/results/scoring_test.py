import dataclasses
import json
import os

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tokenizers

from harness.results import scoring
from saxml_ext.evaluation import rouge

_SCORES = rouge.Scores(50.0, 25.0, 40.0, 100, 2)
_SAME = {0: (1, 2), 1: (3,)}
_BY_ROUGE = scoring.Rule(0.01, identical=False)
_BY_TOKENS = scoring.Rule(0.01, identical=True)


def _tokenizer() -> tokenizers.Tokenizer:
  vocab = {'<eos>': 0, 'one': 1, 'two': 2, 'three': 3}
  tokenizer = tokenizers.Tokenizer(
    tokenizers.models.WordLevel(vocab, unk_token='<eos>')
  )
  tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
  tokenizer.add_special_tokens(['<eos>'])
  return tokenizer


class ScoringTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._dir = self.create_tempdir().full_path
    self._log = os.path.join(self._dir, 'mlperf_log_accuracy.json')

  def _write(self, *answers: list[int]) -> None:
    entries = [
      {'qsl_idx': i, 'data': np.asarray(ids, np.int64).tobytes().hex()}
      for i, ids in enumerate(answers)
    ]
    with open(self._log, 'w', encoding='utf-8') as file:
      json.dump(entries, file)

  def test_an_end_id_changes_no_score(self):
    highlights = ['one two', 'three']
    lines = set()
    for answers in (
      ([1, 2], [3, 3]),
      ([1, 2, 0], [3, 3, 0]),
      ([1, 2, 0, 0, 0], [3, 3, 0]),
    ):
      self._write(*answers)
      lines.add(
        scoring.score_log(self._log, highlights, _tokenizer()).scores.line
      )
    # Precision is 1 and recall is 1/2, so F = 2/3.
    self.assertEqual(
      lines,
      {
        "{'rouge1': 83.3333, 'rouge2': 50.0, 'rougeL': 83.3333, 'gen_len': 18,"
        " 'gen_num': 2}"
      },
    )

  def test_line_is_written_to_the_given_file(self):
    self._write([1, 2])
    scored = scoring.score_log(self._log, ['one two'], _tokenizer())
    self.assertEqual(scored.answers, {0: (1, 2)})
    other = os.path.join(self._dir, 'other.txt')
    scoring.score_log(self._log, ['one two'], _tokenizer(), output=other)
    for path in (os.path.join(self._dir, scoring.ACCURACY_FILE), other):
      with open(path, encoding='utf-8') as file:
        self.assertEqual(file.read(), scored.scores.line + '\n')


class ComparisonTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self._path = os.path.join(self.create_tempdir().full_path, 'reference.json')
    self._record(
      tokens=[[1, 2, 0, 0], [3, 0, 0, 0]],
      rouge1=50.004,
      rouge2=25.0,
      rougeL=40.0,
      gen_len=101,
    )

  def _record(self, **values) -> None:
    with open(self._path, 'w', encoding='utf-8') as file:
      json.dump(values, file)

  def _reference(self, highlights=('one two', 'three')) -> scoring.Reference:
    return scoring.load_reference(self._path, highlights, _tokenizer())

  def _compare(self, answers, rule, scores=_SCORES) -> scoring.Comparison:
    return scoring.compare(
      scoring.Scored(scores, answers), self._reference(), rule, _tokenizer()
    )

  def test_least_figures_decide_without_a_reference(self):
    least = {'rouge1': 42.556635, 'gen_len': 3615190.2}
    for rouge1, gen_len, missed in (
      (42.5567, 4000000, []),
      (42.5566, 4000000, ['rouge1 is 42.5566; it must be at least 42.5566']),
      (0.0, 1, ['rouge1 is 0.0000', 'gen_len is 1; it must be at least 3615']),
    ):
      scores = rouge.Scores(rouge1, 25.0, 40.0, gen_len, 2)
      comparison = scoring.Comparison(
        scores, None, 0, scoring.Rule(None, False, least, 'the target')
      )
      problems = comparison.problems()
      self.assertLen(problems, len(missed), problems)
      for problem, expected in zip(problems, missed):
        self.assertStartsWith(problem, expected)
        self.assertEndsWith(problem, ', the target')
      self.assertEqual('FAILED' in comparison.verdict, bool(missed))
      self.assertEqual(comparison.passed, not missed)

  def test_the_largest_figure_decides_too(self):
    rule = scoring.Rule(
      None, False, {'gen_len': 10}, 'the target', {'gen_len': 100}, 'no Lsum'
    )
    for gen_len, problems in (
      (9, ['gen_len is 9; it must be at least 10.0000, the target']),
      (100, []),
      (101, ['gen_len is 101; it must be at most 100.0000, the target']),
    ):
      scores = rouge.Scores(1.0, 1.0, 1.0, gen_len, 2)
      comparison = scoring.Comparison(scores, None, 0, rule)
      self.assertEqual(comparison.problems(), problems)
      self.assertEqual(comparison.verdict.count('PASSED'), 2 - len(problems))
      self.assertEndsWith(comparison.verdict, '\nthe target\nno Lsum')

  def test_a_reference_has_rouge_lsum_if_texts_are_split(self):
    highlights = ['one two', 'three']
    reference = scoring.load_reference(
      self._path, highlights, _tokenizer(), str.splitlines
    )
    self.assertEqual(reference.scores.rougeLsum, 100.0)
    self.assertEqual(
      reference.shares(0.5),
      dict.fromkeys(reference.scores.rouge, 50.0) | {'rouge2': 25.0},
    )
    rule = scoring.Rule(0.01, False)
    ours = dataclasses.replace(reference.scores, rougeLsum=99.9)
    comparison = scoring.Comparison(ours, reference.scores, 2, rule)
    self.assertRegex(comparison.problems()[0], 'by 0.1000; the limit')
    self.assertRegex(comparison.table, r'rougeLsum +99\.9000 +100\.0000 +-0\.1')

  def test_note_explains_missing_requirements(self):
    rule = scoring.Rule(None, False, note='not judged: one beam')
    comparison = self._compare({}, rule, rouge.Scores(1.0, 1.0, 1.0, 9, 2))
    self.assertTrue(comparison.passed)
    self.assertIn('not judged: one beam', comparison.verdict)
    self.assertNotIn('tolerance', comparison.verdict)

  def test_recorded_scores_are_used_for_all_articles(self):
    reference = self._reference()
    self.assertEqual(reference.scores.rouge1, 50.004)
    self.assertEqual(reference.tokens, ((1, 2), (3,)))

  def test_fewer_articles_are_scored_again(self):
    reference = self._reference(['one'])
    # Precision is 1/2 and recall is 1, so F = 2/3.
    self.assertEqual(reference.scores.rouge1, 66.6667)
    self.assertEqual(reference.scores.gen_num, 1)

  def test_more_articles_are_refused(self):
    with self.assertRaisesRegex(ValueError, '2 articles, but the run has 3'):
      self._reference(['a', 'b', 'c'])

  def test_another_file_is_refused(self):
    self._record(tokens=[[1]])
    with self.assertRaisesRegex(
      ValueError, 'not a recorded reference .*rouge1'
    ):
      self._reference(['a'])

  @parameterized.parameters(
    ({0: (1, 2), 1: (3,)}, 2),
    ({0: (1, 2, 0), 1: (3, 0, 0)}, 2),
    ({0: (1, 2), 1: (3, 3)}, 1),
    # The answer ends at the end id, so it is empty here.
    ({0: (0, 1, 2), 1: (3,)}, 1),
    ({0: (1, 0, 2), 1: (3,)}, 1),
    ({0: (1, 2)}, 1),
  )
  def test_identical_answers_count_with_any_padding(self, answers, identical):
    comparison = self._compare(answers, _BY_ROUGE)
    self.assertEqual(comparison.identical, identical)
    self.assertIn(
      f"identical to the reference's: {identical} of 2", comparison.table
    )

  def test_table_shows_both_sides(self):
    table = self._compare(_SAME, _BY_ROUGE).table
    self.assertRegex(table, r'rouge1 +50\.0000 +50\.0040 +-0\.0040')
    self.assertRegex(table, r'gen_len +100 +101 +-1')

  @parameterized.parameters('rouge1', 'rouge2', 'rougeL')
  def test_each_rouge_figure_counts(self, name):
    values = dict(rouge1=50.004, rouge2=25.0, rougeL=40.0)
    values[name] -= 0.02
    scores = rouge.Scores(**values, gen_len=101, gen_num=2)
    comparison = self._compare(_SAME, _BY_ROUGE, scores)
    self.assertFalse(comparison.passed)
    self.assertAlmostEqual(comparison.worst, 0.02)
    self.assertRegex(comparison.problems()[0], 'by 0.0200; the limit is 0.01')
    self.assertIn(
      'largest ROUGE difference 0.0200: BEYOND the tolerance of 0.01',
      comparison.verdict,
    )

  def test_float32_passes_with_every_answer_identical(self):
    comparison = self._compare(_SAME, _BY_TOKENS)
    self.assertTrue(comparison.passed)
    self.assertIn('token for token; 2 of 2 are: PASSED', comparison.verdict)

  @parameterized.parameters(
    ({0: (1, 2), 1: (3, 3)},),
    ({0: (1, 2)},),
  )
  def test_float32_fails_with_one_other_answer(self, answers):
    comparison = self._compare(answers, _BY_TOKENS)
    self.assertFalse(comparison.passed)
    self.assertRegex(
      comparison.problems()[0],
      '1 of 2 answers .*; a float32 run must give all 2',
    )
    self.assertIn('token for token; 1 of 2 are: FAILED', comparison.verdict)
    # The ROUGE difference is within the tolerance even so.
    self.assertIn('within the tolerance', comparison.verdict)

  def test_other_formats_are_judged_by_rouge(self):
    comparison = self._compare({0: (3, 3), 1: (1,)}, _BY_ROUGE)
    self.assertTrue(comparison.passed)
    self.assertIn('not judged as a float32 run', comparison.verdict)

  def test_missing_reference_passes_with_a_note(self):
    comparison = scoring.compare(
      scoring.Scored(_SCORES, {}), None, _BY_TOKENS, _tokenizer()
    )
    self.assertTrue(comparison.passed)
    self.assertIn('no reference', comparison.table)
    self.assertEqual(comparison.verdict, '')


if __name__ == '__main__':
  absltest.main()
