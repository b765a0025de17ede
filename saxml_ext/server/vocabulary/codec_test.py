"""Tests of codecs."""

import os

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tokenizers

from saxml_ext.common import errors
from saxml_ext.server.vocabulary import codec


def _save_tokenizer(directory: str) -> str:
  model = tokenizers.models.WordLevel(
    {'red': 0, 'green': 1, '?': 2, '<end>': 3}, unk_token='?'
  )
  tokenizer = tokenizers.Tokenizer(model)
  tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
  tokenizer.add_special_tokens(['<end>'])
  path = os.path.join(directory, 'tokenizer.json')
  tokenizer.save(path)
  return path


class IdCodecTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.codec = codec.IdCodec(vocab_size=100)

  @parameterized.parameters(
    ('5', [5]),
    ('12,7,99', [12, 7, 99]),
    (' 1, 02 ,3 ', [1, 2, 3]),
    ('000000000001,2', [1, 2]),
  )
  def test_ids_are_parsed(self, text, expected):
    ids = self.codec.encode(text)
    self.assertEqual(ids.dtype, np.int32)
    self.assertEqual(ids.tolist(), expected)

  def test_ids_are_written(self):
    self.assertEqual(self.codec.decode([12, 7, 99]), '12,7,99')
    self.assertEqual(self.codec.decode([]), '')

  @parameterized.parameters(
    '',
    ' ',
    ',',
    '1,',
    ',1',
    '1,,2',
    '1 2',
    '-1',
    '+1',
    '1.0',
    '1_0',
    '0x1',
    'hello',
    '1,\n2',
    '١',
    '1;2',
  )
  def test_other_text_is_refused(self, text):
    with self.assertRaisesRegex(
      errors.InvalidArgument, 'token ids separated by commas'
    ):
      self.codec.encode(text)

  @parameterized.parameters(
    '100',
    '999999999',
    '1,9999999999',
    # These numbers are equal to 1 modulo 2**64 and modulo 2**32.
    '18446744073709551617',
    '4294967297',
    '9' * 5000,
  )
  def test_ids_out_of_the_vocabulary_are_refused(self, text):
    with self.assertRaises(errors.InvalidArgument) as caught:
      self.codec.encode(text)
    self.assertRegex(caught.exception.message, 'token ids? ')
    self.assertLess(len(caught.exception.message), 200)


class TokenizerCodecTest(absltest.TestCase):
  def test_round_trip_without_special_tokens(self):
    directory = self.create_tempdir().full_path
    path = _save_tokenizer(directory)
    loaded = codec.load_tokenizer(path, '/nowhere')
    self.assertEqual(loaded.encode('green red blue').tolist(), [1, 0, 2])
    self.assertEqual(loaded.decode([1, 0, 3]), 'green red')
    self.assertEqual(loaded.encode('').tolist(), [])

  def _with_post_processor(self, single: str | None) -> codec.Codec:
    """Returns a tokenizer that adds the special tokens of a template."""
    vocab = {'a': 0, 'b': 1, '<s>': 2, '</s>': 3}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, 'b'))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.add_special_tokens(['<s>', '</s>'])
    if single:
      # The form of Llama 3's file: byte offsets, and then special tokens.
      made.post_processor = tokenizers.processors.Sequence(
        [
          tokenizers.processors.ByteLevel(trim_offsets=True),
          tokenizers.processors.TemplateProcessing(
            single=single, special_tokens=[('<s>', 2), ('</s>', 3)]
          ),
        ]
      )
    path = self.create_tempfile('tokenizer.json').full_path
    made.save(path)
    # tokenizer(text) of transformers returns these ids.
    self.expected = made.encode('b a').ids
    return codec.load_tokenizer(path, '/nowhere')

  def test_start_id_matches_transformers(self):
    for single, expected in ((None, None), ('$A', None), ('<s> $A', 2)):
      words = self._with_post_processor(single)
      start = words.start_id()
      self.assertEqual(start, expected)
      # A text has no start id before the service adds it.
      self.assertEqual(words.encode('b a').tolist(), [1, 0])
      self.assertEqual(
        ([] if start is None else [start]) + [1, 0], self.expected
      )

  def test_other_special_tokens_are_refused(self):
    for single in ('<s> $A </s>', '$A </s>', '<s> <s> $A'):
      words = self._with_post_processor(single)
      with self.assertRaisesRegex(
        errors.InvalidArgument, "encodes 'a' as .* Set SOS_ID to this id"
      ):
        words.start_id()

  def test_tokenizer_is_found_by_directory_and_beside_the_checkpoint(self):
    directory = self.create_tempdir().full_path
    _save_tokenizer(directory)
    step = os.path.join(directory, 'checkpoint_00000000')
    for vocabulary, checkpoint in (
      (directory, '/nowhere'),
      (None, directory),
      (None, step),
      (None, step + '/'),
    ):
      loaded = codec.load_tokenizer(vocabulary, checkpoint)
      self.assertEqual(loaded.encode('red').tolist(), [0])

  def test_missing_file_error_names_paths_and_remedy(self):
    with self.assertRaisesRegex(
      errors.InvalidArgument,
      'none of these files exists: /no/ckpt/tokenizer.json, .*VOCABULARY_PATH=',
    ):
      codec.load_tokenizer(None, '/no/ckpt')

  def test_malformed_file_is_refused(self):
    path = self.create_tempfile('tokenizer.json', '{"model": 1}').full_path
    with self.assertRaisesRegex(errors.InvalidArgument, 'library cannot read'):
      codec.load_tokenizer(path, '/nowhere')


if __name__ == '__main__':
  absltest.main()
