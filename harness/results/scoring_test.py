import json
import os

from absl.testing import absltest
import numpy as np
import tokenizers

from harness.results import scoring


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

  def test_writes_the_line_where_it_is_told(self):
    self._write([1, 2])
    scored = scoring.score_log(self._log, ['one two'], _tokenizer())
    self.assertEqual(scored.answers, {0: (1, 2)})
    other = os.path.join(self._dir, 'other.txt')
    scoring.score_log(self._log, ['one two'], _tokenizer(), output=other)
    for path in (os.path.join(self._dir, scoring.ACCURACY_FILE), other):
      with open(path, encoding='utf-8') as file:
        self.assertEqual(file.read(), scored.scores.line + '\n')


if __name__ == '__main__':
  absltest.main()
