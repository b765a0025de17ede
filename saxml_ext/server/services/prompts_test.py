"""Tests of prompts."""

from absl.testing import absltest
import numpy as np
import tokenizers

from saxml_ext.common import errors
from saxml_ext.params import gptj
from saxml_ext.params import settings as settings_lib
from saxml_ext.server.services import requests
from saxml_ext.server.vocabulary import codec
from saxml_ext.server.vocabulary import tokenizer_codec


def _settings(**attributes) -> settings_lib.Settings:
  attributes = {'INPUT_SEQ_LEN': 4, 'BUCKET_KEYS': None, **attributes}
  params = type('Params', (gptj.TinyTokenizedFP32,), attributes)
  return settings_lib.Settings.of(params)


def _finish(
  ids: list[int],
  settings: settings_lib.Settings,
  words: codec.Codec | None = None,
) -> list[int]:
  words = words or codec.IdCodec(100)
  return requests.finish(np.array(ids, np.int32), settings, words).tolist()


class FinishTest(absltest.TestCase):
  def test_leaves_a_short_prompt(self):
    for ids in ([1], [1, 2], [1, 2, 3], [1, 2, 3, 4]):
      self.assertEqual(_finish(ids, _settings()), ids)
      self.assertEqual(_finish(ids, _settings(SLICE_LEFT=False)), ids)

  def test_cuts_a_long_one(self):
    ids = [1, 2, 3, 4, 5, 6]
    self.assertEqual(_finish(ids, _settings()), [1, 2, 3, 4])
    self.assertEqual(_finish(ids, _settings(SLICE_LEFT=False)), [3, 4, 5, 6])

  def test_start_id_takes_room(self):
    settings = _settings(EOS_PADDING_AND_NO_SOS=False, SOS_ID=9)
    self.assertEqual(_finish([1, 2, 3, 4], settings), [9, 1, 2, 3])
    self.assertEqual(_finish([], settings), [9])
    settings = _settings(
      EOS_PADDING_AND_NO_SOS=False, SOS_ID=9, SLICE_LEFT=False
    )
    self.assertEqual(_finish([1, 2, 3, 4], settings), [9, 2, 3, 4])
    self.assertEqual(_finish([1, 2], settings), [9, 1, 2])

  def test_a_start_token_of_the_text_is_not_doubled(self):
    made = tokenizers.Tokenizer(
      tokenizers.models.WordLevel({'a': 0, '<s>': 9}, 'a')
    )
    made.add_special_tokens(['<s>'])
    words = tokenizer_codec.TokenizerCodec(made)
    for slice_left, expected in (True, [9, 1, 2, 3]), (False, [9, 2, 3, 4]):
      settings = _settings(
        EOS_PADDING_AND_NO_SOS=False, SOS_ID=9, SLICE_LEFT=slice_left
      )
      self.assertEqual(_finish([9, 1], settings, words), [9, 1])
      self.assertEqual(_finish([9, 9, 1], settings, words), [9, 9, 1])
      self.assertEqual(_finish([9, 1, 2, 3, 4], settings, words), expected)
      # As in stock Sax, prompts of ids always get the id.
      self.assertEqual(_finish([9, 1], settings), [9, 9, 1])

  def test_refuses_a_long_one_if_set_to(self):
    settings = _settings(FAIL_ON_INPUT_TRUNCATION=True)
    self.assertLen(_finish([1] * 4, settings), 4)
    with self.assertRaisesRegex(
      errors.InvalidArgument, 'has 5 tokens.*at most 4.*INPUT_SEQ_LEN'
    ):
      _finish([1] * 5, settings)

  def test_refuses_an_empty_one(self):
    with self.assertRaisesRegex(errors.InvalidArgument, 'prompt has 0 tokens'):
      _finish([], _settings())


class CheckScoreTest(absltest.TestCase):
  def test_shared_length(self):
    requests.check_score([1, 2], [3, 4], _settings())
    with self.assertRaisesRegex(
      errors.InvalidArgument, '3 and 2 tokens.*4 together'
    ):
      requests.check_score([1, 2, 3], [4, 5], _settings())

  def test_own_suffix_length(self):
    settings = _settings(SUFFIX_SEQ_LEN=2)
    requests.check_score([1, 2, 3, 4], [5, 6], settings)
    for prefix, suffix in (([1] * 5, [2]), ([1], [2] * 3)):
      with self.assertRaisesRegex(errors.InvalidArgument, 'SUFFIX_SEQ_LEN'):
        requests.check_score(prefix, suffix, settings)

  def test_refuses_empty_parts(self):
    with self.assertRaisesRegex(errors.InvalidArgument, 'prefix has 0'):
      requests.check_score([], [1], _settings())
    with self.assertRaisesRegex(errors.InvalidArgument, 'suffix has 0'):
      requests.check_score([1], [], _settings())


if __name__ == '__main__':
  absltest.main()
