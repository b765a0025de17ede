import json
import pathlib

from absl.testing import absltest
import tokenizers
from tokenizers import models
from tokenizers import pre_tokenizers

from benchmarks.tpu_estimate import count_lengths
from benchmarks.tpu_estimate import lengths


class CountLengthsTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.folder = pathlib.Path(self.create_tempdir().full_path)
    words = tokenizers.Tokenizer(models.WordLevel({'?': 0}, unk_token='?'))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    self.tokenizer = str(self.folder / 'tokenizer.json')
    words.save(self.tokenizer)

  def _count(self, *records: tuple[str, str]) -> str:
    path = self.folder / 'calibration.json'
    entries = [
      {'instruction': 'Summarize:', 'input': article, 'output': summary}
      for article, summary in records
    ]
    path.write_text(json.dumps(entries), 'utf-8')
    return count_lengths.count(str(path), self.tokenizer)

  def test_counts_tokens_within_the_limits(self):
    text = self._count(('a ' * 5, 'b ' * 49), ('a ' * 3000, 'b ' * 500))
    record = json.loads(text)
    empty = json.loads(self._count(('', '')))
    (frame,) = map(int, empty['prompts'])
    self.assertEqual(record['prompts'], {str(frame + 5): 1, '1919': 1})
    self.assertEqual(record['outputs'], {'50': 1, '128': 1})
    self.assertEqual(empty['outputs'], {'30': 1})

  def test_lengths_can_be_drawn_from_its_file(self):
    drawn = lengths.read(self._count(('a ' * 5, 'b ' * 49)), 'x', 10)
    self.assertEqual(set(drawn.outputs), {50})
    self.assertIn('calibration.json', drawn.source)

  def test_another_file_is_refused(self):
    path = self.folder / 'other.json'
    path.write_text('[{"text": "a"}]', 'utf-8')
    with self.assertRaisesRegex(
      ValueError, r'other\.json: .*missing required field .instruction'
    ):
      count_lengths.count(str(path), self.tokenizer)


if __name__ == '__main__':
  absltest.main()
