"""Tests of making tokenizer.json from files of ranks."""

import base64
import json
import os
import random

from absl.testing import absltest
from absl.testing import parameterized
import tokenizers

from converters.hf import rank_tokenizer
from converters.hf import tokenizer_files
from saxml_ext.pax import errors

_WORDS = (
  ('hello', ' world', "don't", "I'LL", '  ', '\n', '\r\n', '\t', '12345')
  + ('naïve', 'Zürich', '你好', 'Привет', '😀', '👩‍👩‍👧', 'e\u0301', '\u200b')
  + ('\u00a0', '...', '/*', 'http://a.b/c?d=e', 'CamelCase', '<s>', '</s>')
  + ('<|eot_id|>', '[INST]', '\x00', 'aaaaaaa', '   ', '½', 'Ⅷ', 'ﬁ')
)
_PATTERN = r'[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+'
_SPECIAL = ('<unk>', '<s>', '</s>', '[INST]')


def _texts() -> list[str]:
  rng = random.Random(0)
  return [''.join(rng.choices(_WORDS, k=rng.randint(0, 9))) for _ in range(200)]


def _tokens() -> list[bytes]:
  """Returns all bytes, and frequent sequences that were learned in turn."""
  tokens = [bytes([byte]) for byte in range(256)]
  words = [word.encode() for word in _WORDS if word[0] not in '<['] * 2
  parts = [[word[i : i + 1] for i in range(len(word))] for word in words]
  for _ in range(150):
    counts: dict[bytes, int] = {}
    for part in parts:
      for pair in zip(part, part[1:]):
        token = b''.join(pair)
        if token not in tokens:
          counts[token] = counts.get(token, 0) + 1
    if not counts:
      break
    best = max(counts, key=lambda token: (counts[token], token))
    tokens.append(best)
    parts = [_merged(part, best) for part in parts]
  return tokens


def _merged(parts: list[bytes], token: bytes) -> list[bytes]:
  result: list[bytes] = []
  for part in parts:
    if result and result[-1] + part == token:
      result[-1] = token
    else:
      result.append(part)
  return result


def _encode(word: bytes, ranks: dict[bytes, int]) -> list[int]:
  """Returns the ids of a word by the rule of tiktoken."""
  if word in ranks:
    return [ranks[word]]
  parts = [word[i : i + 1] for i in range(len(word))]
  while True:
    pairs = [
      (ranks[a + b], i)
      for i, (a, b) in enumerate(zip(parts, parts[1:]))
      if a + b in ranks
    ]
    if not pairs:
      return [ranks[part] for part in parts]
    _, i = min(pairs)
    parts[i : i + 2] = [parts[i] + parts[i + 1]]


def _tekken(**changes) -> bytes:
  tokens = _tokens()
  document = {
    'config': {
      'pattern': _PATTERN,
      'default_vocab_size': len(tokens) + 10,
      'default_num_special_tokens': 10,
      'version': 'v3',
    },
    'vocab': [
      {
        'rank': i,
        'token_bytes': base64.b64encode(t).decode(),
        'token_str': None,
      }
      for i, t in enumerate(tokens)
    ],
    'special_tokens': [
      {'rank': i, 'token_str': text, 'is_control': True}
      for i, text in enumerate(_SPECIAL)
    ],
    **changes,
  }
  return json.dumps(document).encode()


def _ranks(tokens: list[bytes]) -> bytes:
  return b''.join(
    base64.b64encode(token) + b' %d\n' % i for i, token in enumerate(tokens)
  )


class RankTokenizerTest(parameterized.TestCase):
  def check(self, files: dict[str, bytes], first: int, start: int) -> None:
    tokenizer = tokenizers.Tokenizer.from_str(files['tokenizer.json'].decode())
    # Text that looks like a special token is text, as for both makers.
    tokenizer.encode_special_tokens = True
    ranks = {token: first + i for i, token in enumerate(_tokens())}
    for text in _texts():
      words = [
        text[begin:end].encode()
        for _, (begin, end) in tokenizer.pre_tokenizer.pre_tokenize_str(text)
      ]
      self.assertEqual(b''.join(words), text.encode())
      expected = [i for word in words for i in _encode(word, ranks)]
      ids = tokenizer.encode(text).ids
      self.assertEqual(ids, [start, *expected], text)
      self.assertEqual(tokenizer.decode(ids), text)

  def test_mistral(self):
    self.check(rank_tokenizer.from_tekken('x', _tekken()), 10, 1)

  def test_llama3(self):
    tokens = _tokens()
    files = rank_tokenizer.from_llama3('x', _ranks(tokens))
    self.check(files, 0, len(tokens))
    tokenizer = tokenizers.Tokenizer.from_str(files['tokenizer.json'].decode())
    self.assertEqual(tokenizer.get_vocab_size(), len(tokens) + 256)
    for text, index in (
      ('<|begin_of_text|>', 0),
      ('<|end_of_text|>', 1),
      ('<|eot_id|>', 9),
      ('<|reserved_special_token_247|>', 255),
    ):
      self.assertEqual(tokenizer.token_to_id(text), len(tokens) + index)

  def test_older_files_of_mistral_list_no_special_tokens(self):
    config = json.loads(_tekken())['config']
    config |= {'default_vocab_size': 330, 'default_num_special_tokens': 30}
    data = _tekken(special_tokens=None, config=config)
    files = rank_tokenizer.from_tekken('x', data)
    tokenizer = tokenizers.Tokenizer.from_str(files['tokenizer.json'].decode())
    self.assertEqual(tokenizer.get_vocab_size(), 330)
    self.assertEqual(tokenizer.token_to_id('[INST]'), 3)
    self.assertEqual(tokenizer.token_to_id('<SPECIAL_29>'), 29)

  @parameterized.parameters(
    ({'config': {'pattern': 'x'}}, 'missing required field'),
    ({'vocab': []}, 'the sizes of the vocabulary do not fit together'),
    ({'vocab': [{'rank': 1, 'token_bytes': 'AA=='}] * 999}, 'token 0 has the'),
    ({'vocab': [{'rank': 0, 'token_bytes': '!'}] * 999}, 'Only base64'),
    (
      {'vocab': [{'rank': i, 'token_bytes': 'AA=='} for i in range(999)]},
      'a byte has no token',
    ),
    ({'special_tokens': []}, 'a token is missing or is there twice'),
  )
  def test_damaged_files_of_mistral_are_refused(self, changes, message):
    with self.assertRaisesRegex(
      errors.CheckpointError, f'tekken does not describe .*: .*{message}'
    ):
      rank_tokenizer.from_tekken('tekken', _tekken(**changes))

  def test_wrong_patterns_are_refused(self):
    config = {**json.loads(_tekken())['config'], 'pattern': '('}
    with self.assertRaisesRegex(errors.CheckpointError, 'pattern is wrong'):
      rank_tokenizer.from_tekken('tekken', _tekken(config=config))

  def test_damaged_files_of_llama_are_refused(self):
    self.assertIsNone(rank_tokenizer.from_llama3('x', b'Zm9v 1\n'))
    self.assertIsNone(rank_tokenizer.from_llama3('x', b'fo\xff 0\n'))
    self.assertIsNone(rank_tokenizer.from_llama3('x', b'Zm9v 0\n'))
    long = [*_tokens(), b'a' * 1000]
    with self.assertRaisesRegex(errors.CheckpointError, 'more than 256 bytes'):
      rank_tokenizer.from_llama3('x', _ranks(long))

  @parameterized.parameters('tokenizer.model', 'tekken.json')
  def test_a_checkpoint_gets_tokenizer_json(self, name):
    directory = self.create_tempdir().full_path
    data = _tekken() if name == 'tekken.json' else _ranks(_tokens())
    with open(os.path.join(directory, name), 'wb') as f:
      f.write(data)
    files = tokenizer_files.collect(directory)
    self.assertContainsSubset({'tokenizer.json', 'vocab.json'}, files)
    self.assertNotIn(name, files)
    # The model's own files come first.
    for own in ('tokenizer.json', 'tokenizer_config.json'):
      with open(os.path.join(directory, own), 'w', encoding='utf-8') as f:
        f.write('{}')
    files = tokenizer_files.collect(directory)
    self.assertEqual(files['tokenizer.json'], b'{}')
    self.assertNotIn(name, files)


if __name__ == '__main__':
  absltest.main()
