import json
import os

from absl.testing import absltest
from absl.testing import parameterized
import tokenizers
import transformers

from saxml_ext.evaluation import tokenizer as tokenizer_lib

_TEXTS = (
  'A low, lower; lowest price!  Prices\nare not low.',
  '\u00fcn\u00efc\u00f6d\u00e9 \U0001f600 and\ttabs',
  'ends here<|endoftext|> <|extra_1|> goes on',
)


class TokenizerTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self._dir = self.create_tempdir().full_path
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    words = [*alphabet, 'lo', 'low', '\u0120low', '<|endoftext|>']
    self._write('vocab.json', json.dumps({w: n for n, w in enumerate(words)}))
    self._write('merges.txt', '#version: 0.2\nl o\nlo w\n\u0120 low\n')
    self._write(
      'added_tokens.json',
      json.dumps({'<|extra_2|>': len(words) + 1, '<|extra_1|>': len(words)}),
    )

  def _write(self, name: str, text: str) -> None:
    with open(os.path.join(self._dir, name), 'w', encoding='utf-8') as file:
      file.write(text)

  def test_slow_tokenizer_files_are_read_like_transformers(self):
    theirs = transformers.GPT2Tokenizer(
      os.path.join(self._dir, 'vocab.json'),
      os.path.join(self._dir, 'merges.txt'),
    )
    theirs.add_tokens(['<|extra_1|>', '<|extra_2|>'])
    ours = tokenizer_lib.load(self._dir)
    for text in _TEXTS:
      ids = theirs(text)['input_ids']
      self.assertEqual(ours.encode(text).ids, ids)
      self.assertEqual(
        ours.decode(ids), theirs.decode(ids, skip_special_tokens=True)
      )

  def test_tokenizer_json_takes_precedence(self):
    vocab = {'<eos>': 0, 'one': 1}
    tokenizer = tokenizers.Tokenizer(
      tokenizers.models.WordLevel(vocab, unk_token='<eos>')
    )
    tokenizer.enable_truncation(1)
    path = os.path.join(self._dir, 'tokenizer.json')
    tokenizer.save(path)
    for source in (path, self._dir):
      loaded = tokenizer_lib.load(source)
      self.assertEqual(loaded.get_vocab_size(), 2)
      self.assertIsNone(loaded.truncation)

  def test_end_of_text_may_have_another_file_name(self):
    for end in ('low', {'content': 'low'}):
      self._write('tokenizer_config.json', json.dumps({'eos_token': end}))
      loaded = tokenizer_lib.load(self._dir)
      self.assertEqual(loaded.decode(loaded.encode('a low b').ids), 'a  b')

  def test_added_tokens_with_a_gap_are_refused(self):
    self._write('added_tokens.json', '{"<|extra_1|>": 9000}')
    with self.assertRaisesRegex(ValueError, 'the id 9000, which does not'):
      tokenizer_lib.load(self._dir)

  def test_invalid_tokenizer_is_refused(self):
    empty = self.create_tempdir().full_path
    with self.assertRaisesRegex(ValueError, f'{empty}: the directory has'):
      tokenizer_lib.load(empty)
    os.unlink(os.path.join(self._dir, 'merges.txt'))
    with self.assertRaisesRegex(ValueError, 'no usable tokenizer.json'):
      tokenizer_lib.load(self._dir)

  @parameterized.parameters(
    (None, True),
    ('{}', True),
    ('{"clean_up_tokenization_spaces": true}', True),
    ('{"clean_up_tokenization_spaces": false}', False),
  )
  def test_text_is_cleaned_up_by_default(self, config, expected):
    if config:
      self._write('tokenizer_config.json', config)
    self.assertEqual(tokenizer_lib.cleans_up(self._dir), expected)
    file = os.path.join(self._dir, 'tokenizer.json')
    self.assertEqual(tokenizer_lib.cleans_up(file), expected)

  def test_clean_up_matches_transformers(self):
    theirs = transformers.PreTrainedTokenizerBase()
    text = "It 's ' a ' test , is n't it ? I 'm , we 've , they 're . Yes ! ."
    self.assertEqual(
      tokenizer_lib.clean_up(text), theirs.clean_up_tokenization(text)
    )


if __name__ == '__main__':
  absltest.main()
