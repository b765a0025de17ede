"""Tests of the tokenizer files of a checkpoint."""

import json
import os

from absl.testing import absltest
from absl.testing import parameterized
import tokenizers
import transformers

from converters.hf import tokenizer_files
from saxml_ext.pax import errors

_END = '<|endoftext|>'
_TEXTS = (
  'The harbour of Port Élan reopened on Tuesday, officials said.',
  ' two  spaces\tand a\nline',
  "it's 1,234.5 — “quoted” 日本",
)


def _bpe() -> tokenizers.Tokenizer:
  """Returns a byte-level BPE like GPT-2's, with an added end-of-text token."""
  tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
  tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(
    add_prefix_space=False
  )
  tokenizer.decoder = tokenizers.decoders.ByteLevel()
  trainer = tokenizers.trainers.BpeTrainer(
    vocab_size=400,
    show_progress=False,
    initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
  )
  tokenizer.train_from_iterator(
    [f'{text} the officials reopened the harbour' for text in _TEXTS], trainer
  )
  tokenizer.add_special_tokens([_END])
  return tokenizer


class SlowGPT2Tokenizer:
  """Reads the two files like the GPT2Tokenizer that stock Sax pins."""

  def __init__(self, directory: str):
    with open(os.path.join(directory, 'vocab.json'), encoding='utf-8') as f:
      self.encoder = json.load(f)
    with open(os.path.join(directory, 'merges.txt'), encoding='utf-8') as f:
      lines = f.read().split('\n')[1:-1]
    self.ranks = {tuple(line.split()): i for i, line in enumerate(lines)}

  def encode_word(self, word: str) -> list[int]:
    parts = list(word)
    while len(parts) > 1:
      pairs = list(zip(parts, parts[1:]))
      best = min(pairs, key=lambda pair: self.ranks.get(pair, 1 << 30))
      if best not in self.ranks:
        break
      at = pairs.index(best)
      parts[at : at + 2] = [''.join(best)]
    return [self.encoder[part] for part in parts]

  def encode(self, text: str) -> list[int]:
    split = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    words = [word for word, _ in split.pre_tokenize_str(text)]
    return [i for word in words for i in self.encode_word(word)]


class TokenizerFilesTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.source = self.create_tempdir().full_path
    self.target = self.create_tempdir().full_path

  def put(self, name: str, data: bytes) -> None:
    with open(os.path.join(self.source, name), 'wb') as f:
      f.write(data)

  def test_derived_files_give_the_ids_of_tokenizer_json(self):
    bpe = _bpe()
    self.put('tokenizer.json', bpe.to_str().encode())
    tokenizer_files.write(self.target, tokenizer_files.collect(self.source))
    slow = SlowGPT2Tokenizer(self.target)
    self.assertEqual(slow.encoder, bpe.get_vocab(with_added_tokens=True))
    self.assertEqual(slow.encoder[_END], len(slow.encoder) - 1)
    # Current versions of transformers prefer tokenizer.json, so it is removed.
    os.remove(os.path.join(self.target, 'tokenizer.json'))
    modern = transformers.GPT2Tokenizer.from_pretrained(self.target)
    self.assertEqual(modern.eos_token_id, slow.encoder[_END])
    for text in _TEXTS:
      expected = bpe.encode(text).ids
      self.assertLess(len(expected), len(text.encode()))  # Merges apply.
      self.assertEqual(slow.encode(text), expected)
      self.assertEqual(modern.encode(text), expected)
      self.assertEqual(modern.decode(expected), text)

  def test_merges_of_older_tokenizers_are_read(self):
    document = json.loads(_bpe().to_str())
    self.put('tokenizer.json', json.dumps(document).encode())
    expected = tokenizer_files.collect(self.source)
    merges = document['model']['merges']
    document['model']['merges'] = [' '.join(pair) for pair in merges]
    data = json.dumps(document).encode()
    self.put('tokenizer.json', data)
    self.assertEqual(
      tokenizer_files.collect(self.source), expected | {'tokenizer.json': data}
    )
    self.assertStartsWith(
      expected['merges.txt'].decode(), f'#version: 0.2\n{merges[0][0]} '
    )

  def test_files_of_the_source_are_copied_unchanged(self):
    files = {
      'tokenizer.json': _bpe().to_str().encode(),
      'vocab.json': b'{"a": 0}',
      'merges.txt': b'#version: 0.2\n',
      'special_tokens_map.json': b'{}',
      'added_tokens.json': b'{}',
    }
    for name, data in files.items():
      self.put(name, data)
    self.put('README.md', b'not a tokenizer')
    self.assertEqual(tokenizer_files.collect(self.source), files)

  def test_one_of_the_two_is_not_mixed_with_a_derived_one(self):
    self.put('tokenizer.json', _bpe().to_str().encode())
    derived = tokenizer_files.collect(self.source)
    self.put('vocab.json', b'{"a": 0}')
    self.assertEqual(tokenizer_files.collect(self.source), derived)

  def test_nothing_is_derived_from_another_kind_of_tokenizer(self):
    words = tokenizers.models.WordLevel({'a': 0}, unk_token='a')
    characters = tokenizers.models.BPE({'a': 0}, [])
    for model in (words, characters):
      data = tokenizers.Tokenizer(model).to_str().encode()
      self.put('tokenizer.json', data)
      self.assertEqual(
        tokenizer_files.collect(self.source), {'tokenizer.json': data}
      )

  @parameterized.parameters(
    b'{"model": 1}',
    b'{"model": {"type": "BPE"}, "pre_tokenizer": {"type": "ByteLevel"}}',
  )
  def test_broken_tokenizer_is_reported(self, data):
    self.put('tokenizer.json', data)
    with self.assertRaisesRegex(
      errors.CheckpointError, 'tokenizer.json has another format than save'
    ):
      tokenizer_files.collect(self.source)

  def test_settings_without_an_object_are_refused(self):
    directory = self.create_tempdir()
    pointer = 'version https://git-lfs/spec/v1\noid sha256:4d7a\nsize 9\n'
    for name, text, message in (
      ('tokenizer.json', pointer, 'is a pointer of Git LFS'),
      ('tokenizer.model', pointer, 'is a pointer of Git LFS'),
      ('tokenizer.json', '[]', 'is not a JSON object'),
      ('vocab.json', 'root:x:0:0', 'is not a JSON object'),
      ('tokenizer_config.json', '[]', 'is not a JSON object'),
      ('generation_config.json', '{', 'is not a JSON object'),
    ):
      file = directory.create_file(name, content=text)
      with self.assertRaisesRegex(errors.CheckpointError, f'{name} {message}'):
        tokenizer_files.collect(directory.full_path)
      os.remove(file.full_path)

  def test_unusual_files_are_refused(self):
    private = self.create_tempfile('private', '{"secret": 1}').full_path
    for name in tokenizer_files.NAMES:
      path = os.path.join(self.source, name)
      for message, make in (
        ('not a regular file', os.mkfifo),
        ('not a regular file|is a link', lambda p: os.symlink('/dev/zero', p)),
        ('is a link to', lambda p: os.symlink(private, p)),
        ('above the limit', lambda p: os.truncate(os.open(p, 66), 2**33)),
      ):
        make(path)
        with self.assertRaisesRegex(errors.CheckpointError, message):
          tokenizer_files.collect(self.source)
        os.remove(path)


if __name__ == '__main__':
  absltest.main()
