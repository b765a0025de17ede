import json
import os

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tokenizers

from saxml_ext.evaluation import dataset
from saxml_ext.evaluation import tokenizer as tokenizer_lib

_ARTICLE = dataset.Article('Summarize:', 'A {brace} and text.', 'Text.')


def _byte_tokenizer() -> tokenizers.Tokenizer:
  """Returns a BPE tokenizer with one token per byte and no merges."""
  alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
  vocab = {letter: index for index, letter in enumerate(alphabet)}
  tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, []))
  tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(
    add_prefix_space=False
  )
  tokenizer.decoder = tokenizers.decoders.ByteLevel()
  return tokenizer


class DatasetTest(parameterized.TestCase):
  def _write(self, content: object) -> str:
    path = os.path.join(self.create_tempdir().full_path, 'eval.json')
    with open(path, 'w', encoding='utf-8') as file:
      json.dump(content, file)
    return path

  def test_prompt_is_the_references_to_the_byte(self):
    self.assertEqual(
      _ARTICLE.prompt,
      'Below is an instruction that describes a task, paired with an input'
      ' that provides further context. Write a response that appropriately'
      ' completes the request.\n'
      '\n'
      '### Instruction:\n'
      'Summarize:\n'
      '\n'
      '### Input:\n'
      'A {brace} and text.\n'
      '\n'
      '### Response:',
    )

  def test_takes_the_first_articles(self):
    entries = [
      {'instruction': 'i', 'input': str(n), 'output': 'o'} for n in range(3)
    ]
    path = self._write(entries)
    self.assertLen(dataset.load_articles(path), 3)
    articles = dataset.load_articles(path, 2)
    self.assertEqual([article.input for article in articles], ['0', '1'])

  @parameterized.parameters(
    ({'a': 1}, 0, 'Expected .array., got .object.'),
    ([], 0, 'at least one article'),
    (['text'], 0, r'Expected .object., got .str. - at .\$\[0\]'),
    (
      [{'instruction': 'i', 'input': 'a'}],
      0,
      'missing required field .output.',
    ),
    (
      [{'instruction': 'i', 'input': 'a', 'output': 'o'}],
      2,
      '2 were requested',
    ),
  )
  def test_refuses(self, content, count, message):
    with self.assertRaisesRegex(ValueError, message):
      dataset.load_articles(self._write(content), count)

  def test_long_prompt_loses_its_end(self):
    tokenizer = _byte_tokenizer()
    (whole,) = dataset.encode_prompts([_ARTICLE], tokenizer, 1000)
    (cut,) = dataset.encode_prompts([_ARTICLE], tokenizer, 100)
    self.assertEqual(tokenizer.decode(whole), _ARTICLE.prompt)
    self.assertEqual(whole.dtype, np.int32)
    np.testing.assert_array_equal(cut, whole[:100])

  def test_settings_in_the_tokenizer_file_do_not_cut(self):
    tokenizer = _byte_tokenizer()
    tokenizer.enable_truncation(10)
    tokenizer.enable_padding(length=2000)
    path = os.path.join(self.create_tempdir().full_path, 'tokenizer.json')
    tokenizer.save(path)
    loaded = tokenizer_lib.load(path)
    (ids,) = dataset.encode_prompts([_ARTICLE], loaded, 1000)
    self.assertLen(ids, len(_ARTICLE.prompt))

  def test_missing_tokenizer_is_named(self):
    with self.assertRaisesRegex(ValueError, '/nowhere/tokenizer.json'):
      tokenizer_lib.load('/nowhere/tokenizer.json')


if __name__ == '__main__':
  absltest.main()
