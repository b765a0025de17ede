"""Tests of the search for vocabularies and the detection of their formats."""

import os
import shutil

from absl.testing import absltest
import sentencepiece
import tokenizers

from saxml_ext.common import errors
from saxml_ext.params import lm_cloud
from saxml_ext.server.vocabulary import codec
from saxml_ext.server.vocabulary import sentencepiece_codec
from saxml_ext.server.vocabulary import tokenizer_codec

_TEXT = 'The mayor'


def _save_tokenizer(path: str) -> None:
  model = tokenizers.models.WordLevel({'red': 0, '?': 1}, unk_token='?')
  tokenizers.Tokenizer(model).save(path)


class FilesTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.directory = self.create_tempdir().full_path

  def _path(self, name: str) -> str:
    return os.path.join(self.directory, name)

  def test_sentencepiece_models_are_found_like_tokenizers(self):
    model = self._path('tokenizer.model')
    shutil.copy(lm_cloud.SMALL_VOCABULARY, model)
    for vocabulary, checkpoint in (
      (model, '/nowhere'),
      (self.directory, '/nowhere'),
      (None, self.directory),
      (None, self._path('checkpoint_00000000')),
    ):
      loaded = codec.load_tokenizer(vocabulary, checkpoint)
      self.assertEqual(loaded.decode(loaded.encode(_TEXT)), _TEXT)

  def test_unusual_files_are_refused(self):
    for name in ('tokenizer.json', 'tokenizer.model', 'tokenizer_config.json'):
      path = self._path(name)
      for message, make in (
        ('not a regular file', os.mkfifo),
        ('not a regular file', lambda p: os.symlink('/dev/zero', p)),
        ('above the limit', lambda p: os.truncate(os.open(p, 66), 2**33)),
      ):
        if name == 'tokenizer_config.json':
          _save_tokenizer(self._path('tokenizer.json'))
        make(path)
        with self.assertRaisesRegex(errors.InvalidArgument, message):
          codec.load_tokenizer(None, self.directory)
        os.remove(path)

  def test_sentencepiece_has_a_start_id(self):
    shutil.copy(lm_cloud.SMALL_VOCABULARY, self._path('tokenizer.model'))
    # This vocabulary has no start token.
    self.assertIsNone(codec.load_tokenizer(None, self.directory).start_id())
    start = 1
    with open(self._path('tokenizer.model'), 'wb') as file:
      sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(['the mayor', 'a town']),
        model_writer=file,
        vocab_size=16,
        hard_vocab_limit=False,
        bos_id=start,
        minloglevel=2,
      )
    config = self._path('tokenizer_config.json')
    for text, expected in (
      (None, start),
      ('{}', start),
      ('{"add_bos_token": true}', start),
      ('{"add_bos_token": false}', None),
    ):
      if text:
        with open(config, 'w', encoding='utf-8') as file:
          file.write(text)
      loaded = codec.load_tokenizer(None, self.directory)
      self.assertEqual(loaded.start_id(), expected, text)
    with open(config, 'w', encoding='utf-8') as file:
      file.write('{"add_eos_token": true}')
    with self.assertRaisesRegex(errors.InvalidArgument, 'Set it to false'):
      codec.load_tokenizer(None, self.directory).start_id()
    for text in ('[1]', '{'):
      with open(config, 'w', encoding='utf-8') as file:
        file.write(text)
      with self.assertRaisesRegex(
        errors.InvalidArgument, 'tokenizer_config.json is not a JSON object'
      ):
        codec.load_tokenizer(None, self.directory)

  def test_a_tiktoken_file_is_refused(self):
    with open(self._path('tokenizer.model'), 'wb') as file:
      file.write(b'IQ== 0\nIg== 1\n')
    with self.assertRaisesRegex(
      errors.InvalidArgument, 'is a tiktoken file.*tokenizer.json'
    ):
      codec.load_tokenizer(None, self.directory)

  def test_tokenizer_json_takes_precedence(self):
    shutil.copy(lm_cloud.SMALL_VOCABULARY, self._path('tokenizer.model'))
    _save_tokenizer(self._path('tokenizer.json'))
    self.assertIsInstance(
      codec.load_tokenizer(None, self.directory), tokenizer_codec.TokenizerCodec
    )

  def test_file_format_is_detected_by_content(self):
    path = self._path('vocabulary')
    shutil.copy(lm_cloud.SMALL_VOCABULARY, path)
    self.assertIsInstance(
      codec.load_tokenizer(path, '/nowhere'),
      sentencepiece_codec.SentencePieceCodec,
    )
    _save_tokenizer(path)
    self.assertIsInstance(
      codec.load_tokenizer(path, '/nowhere'), tokenizer_codec.TokenizerCodec
    )

  def test_missing_tokenizer_is_accepted_if_not_needed(self):
    self.assertIsNone(codec.find_tokenizer(None, self.directory))
    # The working directory of the process is not searched either.
    self.assertIsNone(codec.find_tokenizer(None, 'None'))
    _save_tokenizer(self._path('tokenizer.json'))
    self.assertIsInstance(
      codec.find_tokenizer(None, self._path('checkpoint')),
      tokenizer_codec.TokenizerCodec,
    )


if __name__ == '__main__':
  absltest.main()
