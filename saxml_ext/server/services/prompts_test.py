"""Tests of prompts."""

import asyncio
import types

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tokenizers

from saxml_ext.common import errors
from saxml_ext.params import gptj
from saxml_ext.params import settings as settings_lib
from saxml_ext.protobuf import completion_pb2
from saxml_ext.server.services import prompts
from saxml_ext.server.vocabulary import codec
from saxml_ext.server.vocabulary import tokenizer_codec


def _settings(**attributes) -> settings_lib.Settings:
  attributes = {'INPUT_SEQ_LEN': 4, 'BUCKET_KEYS': None, **attributes}
  params = type('Params', (gptj.TinyTokenizedFP32,), attributes)
  return settings_lib.Settings.from_params(params)


def _truncate(
  ids: list[int],
  settings: settings_lib.Settings,
  words: codec.Codec | None = None,
) -> list[int]:
  codecs = types.SimpleNamespace(input=words or codec.IdCodec(100))
  model = types.SimpleNamespace(settings=settings, codecs=codecs)
  return prompts.truncate(np.array(ids, np.int32), model).tolist()


class TruncateTest(absltest.TestCase):
  def test_short_prompt_is_unchanged(self):
    for ids in ([1], [1, 2], [1, 2, 3], [1, 2, 3, 4]):
      self.assertEqual(_truncate(ids, _settings()), ids)
      self.assertEqual(_truncate(ids, _settings(SLICE_LEFT=False)), ids)

  def test_long_prompt_is_truncated(self):
    ids = [1, 2, 3, 4, 5, 6]
    self.assertEqual(_truncate(ids, _settings()), [1, 2, 3, 4])
    self.assertEqual(_truncate(ids, _settings(SLICE_LEFT=False)), [3, 4, 5, 6])

  def test_start_id_takes_room(self):
    settings = _settings(EOS_PADDING_AND_NO_SOS=False, SOS_ID=9)
    self.assertEqual(_truncate([1, 2, 3, 4], settings), [9, 1, 2, 3])
    self.assertEqual(_truncate([], settings), [9])
    settings = _settings(
      EOS_PADDING_AND_NO_SOS=False, SOS_ID=9, SLICE_LEFT=False
    )
    self.assertEqual(_truncate([1, 2, 3, 4], settings), [9, 2, 3, 4])
    self.assertEqual(_truncate([1, 2], settings), [9, 1, 2])

  def test_start_token_of_the_text_is_not_doubled(self):
    made = tokenizers.Tokenizer(
      tokenizers.models.WordLevel({'a': 0, '<s>': 9}, 'a')
    )
    made.add_special_tokens(['<s>'])
    words = tokenizer_codec.TokenizerCodec(made)
    for slice_left, expected in (True, [9, 1, 2, 3]), (False, [9, 2, 3, 4]):
      settings = _settings(
        EOS_PADDING_AND_NO_SOS=False, SOS_ID=9, SLICE_LEFT=slice_left
      )
      self.assertEqual(_truncate([9, 1], settings, words), [9, 1])
      self.assertEqual(_truncate([9, 9, 1], settings, words), [9, 9, 1])
      self.assertEqual(_truncate([9, 1, 2, 3, 4], settings, words), expected)
      # As in stock Sax, prompts of ids always get the id.
      self.assertEqual(_truncate([9, 1], settings), [9, 9, 1])

  def test_long_prompt_is_refused_if_configured(self):
    settings = _settings(FAIL_ON_INPUT_TRUNCATION=True)
    self.assertLen(_truncate([1] * 4, settings), 4)
    with self.assertRaisesRegex(
      errors.InvalidArgument, 'has 5 tokens.*at most 4.*INPUT_SEQ_LEN'
    ):
      _truncate([1] * 5, settings)

  def test_empty_prompt_is_refused(self):
    with self.assertRaisesRegex(errors.InvalidArgument, 'prompt has 0 tokens'):
      _truncate([], _settings())


class TokenizeTest(parameterized.TestCase):
  @parameterized.parameters(
    ('<s>two one', 1, [1, 3, 2]),
    ('two one', 1, [1, 3, 2]),
    ('<s><s>two', 1, [1, 1, 3]),
    ('', 1, [1]),
    ('two', None, [3]),
    # An ordinary token with the id of a start token is text.
    ('two', 3, [3, 3]),
  )
  def test_start_token_of_the_text_is_not_doubled(self, text, start, ids):
    made = tokenizers.Tokenizer(
      tokenizers.models.WordLevel({'<s>': 1, 'one': 2, 'two': 3}, 'one')
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.add_special_tokens(['<s>'])
    words = tokenizer_codec.TokenizerCodec(made)
    model = types.SimpleNamespace(
      settings=types.SimpleNamespace(
        sos_id=start, engine=types.SimpleNamespace(max_prompt=9)
      ),
      codecs=types.SimpleNamespace(words=words),
    )
    for options in {}, {'add_special_tokens': True}:
      request = completion_pb2.CompleteRequest(text=text, **options)
      got = asyncio.run(prompts.tokenize(model, request))
      self.assertEqual(got.tolist(), ids)
    # The prompt of a chat template stays as it is.
    request = completion_pb2.TokenizeRequest(
      text=text, add_special_tokens=False
    )
    got = asyncio.run(prompts.tokenize(model, request))
    self.assertEqual(got.tolist(), words.encode(text).tolist())


class CheckScoreTest(absltest.TestCase):
  def test_prefix_and_suffix_share_the_limit(self):
    prompts.check_score([1, 2], [3, 4], _settings())
    with self.assertRaisesRegex(
      errors.InvalidArgument, '3 and 2 tokens.*4 together'
    ):
      prompts.check_score([1, 2, 3], [4, 5], _settings())

  def test_suffix_may_have_its_own_limit(self):
    settings = _settings(SUFFIX_SEQ_LEN=2)
    prompts.check_score([1, 2, 3, 4], [5, 6], settings)
    for prefix, suffix in (([1] * 5, [2]), ([1], [2] * 3)):
      with self.assertRaisesRegex(errors.InvalidArgument, 'SUFFIX_SEQ_LEN'):
        prompts.check_score(prefix, suffix, settings)

  def test_empty_parts_are_refused(self):
    with self.assertRaisesRegex(errors.InvalidArgument, 'prefix has 0'):
      prompts.check_score([], [1], _settings())
    with self.assertRaisesRegex(errors.InvalidArgument, 'suffix has 0'):
      prompts.check_score([1], [], _settings())


if __name__ == '__main__':
  absltest.main()
