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

  def test_prompt_equals_the_reference(self):
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

  def test_first_articles_are_taken(self):
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
  def test_invalid_files_are_refused(self, content, count, message):
    with self.assertRaisesRegex(ValueError, message):
      dataset.load_articles(self._write(content), count)

  def _tokenized(self, **changes) -> dict[str, object]:
    """Returns an entry in the schema of Llama's files."""
    ids = _byte_tokenizer().encode(_ARTICLE.filled(dataset.LLAMA_TEMPLATE)).ids
    return {
      'instruction': {'llama': dataset.LLAMA_TEMPLATE},
      'input': _ARTICLE.input,
      'tok_input': ids,
      'output': _ARTICLE.output,
    } | changes

  def test_stored_token_ids_are_the_prompts(self):
    # The first samples show that the tokenizer fits. Others are not encoded.
    odd = [5, 200, 3] * 500
    entries = [self._tokenized()] * 3 + [self._tokenized(tok_input=odd)]
    articles = dataset.load_articles(self._write(entries))
    prompts = dataset.encode_prompts(articles, _byte_tokenizer(), None)
    self.assertEqual(prompts[3].tolist(), odd)
    self.assertEqual({ids.dtype for ids in prompts}, {np.dtype(np.int32)})
    tokenizer = _byte_tokenizer()
    self.assertEqual(
      tokenizer.decode(prompts[0]), _ARTICLE.filled(dataset.LLAMA_TEMPLATE)
    )
    (cut,) = dataset.encode_prompts(articles[:1], tokenizer, 4)
    self.assertEqual(cut.tolist(), prompts[0].tolist()[:4])

  def test_tokenizer_of_another_file_is_refused(self):
    ids = self._tokenized()['tok_input']
    assert isinstance(ids, list)
    for entries, message in (
      (
        [self._tokenized(), self._tokenized(tok_input=[9, *ids])],
        rf'sample 1: tok_input has {len(ids) + 1} ids, from .9, .*tokenizer'
        rf' makes {len(ids)} of .*--tokenizer_path',
      ),
      (
        [self._tokenized()] * 4 + [self._tokenized(tok_input=[1, 256])],
        'sample 4: tok_input has the id 256, but .* only the ids 0 to 255',
      ),
    ):
      articles = dataset.load_articles(self._write(entries))
      with self.assertRaisesRegex(ValueError, message):
        dataset.encode_prompts(articles, _byte_tokenizer(), None)

  @parameterized.parameters(
    ({'tok_input': []}, r'length >= 1 - at .\$\[1\].tok_input'),
    ({'tok_input': [1, -1]}, r'>= 0 - at .\$\[1\].tok_input\[1\]'),
    ({'tok_input': [1 << 31]}, r'<= 2147483647 - at .\$\[1\].tok_input'),
    ({'tok_input': '1,2'}, 'got .str. - at'),
    ({'tok_input': None}, 'sample 1 has no tok_input, but 1 of 2 samples'),
  )
  def test_invalid_token_ids_are_refused(self, changes, message):
    entries = [self._tokenized(), self._tokenized(**changes)]
    with self.assertRaisesRegex(ValueError, message):
      dataset.load_articles(self._write(entries))

  def test_gptj_prompt_requires_an_instruction(self):
    (article,) = dataset.load_articles(
      self._write([self._tokenized(tok_input=None)])
    )
    with self.assertRaisesRegex(ValueError, 'is an object, as in files of lla'):
      dataset.encode_prompts([article], _byte_tokenizer(), 1000)

  def test_long_prompt_is_truncated_at_its_end(self):
    tokenizer = _byte_tokenizer()
    (whole,) = dataset.encode_prompts([_ARTICLE], tokenizer, 1000)
    (cut,) = dataset.encode_prompts([_ARTICLE], tokenizer, 100)
    self.assertEqual(tokenizer.decode(whole), _ARTICLE.prompt)
    self.assertEqual(whole.dtype, np.int32)
    np.testing.assert_array_equal(cut, whole[:100])

  def test_truncation_settings_of_the_tokenizer_are_ignored(self):
    tokenizer = _byte_tokenizer()
    tokenizer.enable_truncation(10)
    tokenizer.enable_padding(length=2000)
    path = os.path.join(self.create_tempdir().full_path, 'tokenizer.json')
    tokenizer.save(path)
    loaded = tokenizer_lib.load(path)
    (ids,) = dataset.encode_prompts([_ARTICLE], loaded, 1000)
    self.assertLen(ids, len(_ARTICLE.prompt))

  def test_missing_tokenizer_is_reported(self):
    with self.assertRaisesRegex(ValueError, '/nowhere/tokenizer.json'):
      tokenizer_lib.load('/nowhere/tokenizer.json')


if __name__ == '__main__':
  absltest.main()
