import json
import os

from absl.testing import absltest
import tokenizers

from harness import loadgen_log
from harness import report
from saxml_ext.common import rouge

_SCORES = rouge.Scores(50.0, 25.0, 40.0, 100, 2)


def _tokenizer() -> tokenizers.Tokenizer:
  vocab = {'<eos>': 0, 'one': 1, 'two': 2, 'three': 3}
  tokenizer = tokenizers.Tokenizer(
      tokenizers.models.WordLevel(vocab, unk_token='<eos>')
  )
  tokenizer.add_special_tokens(['<eos>'])
  return tokenizer


class ReportTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self._dir = self.create_tempdir().full_path
    self._reference_path = os.path.join(self._dir, 'reference.json')
    record = dict(
        tokens=[[1, 2, 0, 0], [3, 0, 0, 0]],
        rouge1=50.004,
        rouge2=25.0,
        rougeL=40.0,
        gen_len=101,
    )
    with open(self._reference_path, 'w', encoding='utf-8') as file:
      json.dump(record, file)

  def _reference(self, highlights) -> report.Reference:
    return report.load_reference(self._reference_path, highlights, _tokenizer())

  def test_recorded_scores_are_used_for_all_articles(self):
    reference = self._reference(['one two', 'three'])
    self.assertEqual(reference.scores.rouge1, 50.004)
    self.assertEqual(reference.tokens, ((1, 2), (3,)))

  def test_fewer_articles_are_scored_anew(self):
    reference = self._reference(['one'])
    # One of two words, and the one of one: F = 2/3.
    self.assertEqual(reference.scores.rouge1, 66.6667)
    self.assertEqual(reference.scores.gen_num, 1)

  def test_more_articles_are_refused(self):
    with self.assertRaisesRegex(ValueError, '2 articles, but the run has 3'):
      self._reference(['a', 'b', 'c'])

  def test_counts_identical_answers_whatever_their_padding(self):
    comparison = report.compare(
        _SCORES,
        {0: (1, 2), 1: (3, 3)},
        self._reference(['one two', 'three']),
        0.01,
        _tokenizer(),
    )
    self.assertEqual(comparison.identical, 1)
    self.assertTrue(comparison.passed)
    self.assertRegex(comparison.table, r'rouge1 +50\.0000 +50\.0040 +-0\.0040')
    self.assertRegex(comparison.table, r'gen_len +100 +101 +-1')
    self.assertIn("identical to the reference's: 1 of 2", comparison.table)

  def test_beyond_the_tolerance(self):
    comparison = report.compare(
        _SCORES, {}, self._reference(['one two', 'three']), 0.003, _tokenizer()
    )
    self.assertFalse(comparison.passed)
    self.assertIn(
        'largest ROUGE difference 0.0040: BEYOND the tolerance of 0.003',
        report.render(comparison, None),
    )

  def test_no_reference_passes_and_says_so(self):
    comparison = report.compare(_SCORES, {}, None, 0.01, _tokenizer())
    self.assertTrue(comparison.passed)
    self.assertIn('no reference', comparison.table)

  def test_report_shows_the_summary(self):
    log = loadgen_log.RunLog('d', 'Result is : VALID\n', {}, ())
    path = report.write(self._dir, 'Offline', report.render(None, log))
    with open(path, encoding='utf-8') as file:
      self.assertIn('Result is : VALID', file.read())


if __name__ == '__main__':
  absltest.main()
