"""Tests of reading completion requests."""

import types

from absl.testing import absltest
from absl.testing import parameterized
import tokenizers

from saxml_ext.protobuf import completion_pb2
from saxml_ext.server.completion import asked
from saxml_ext.server.vocabulary import tokenizer_codec

_START = 1


class WithStartTest(parameterized.TestCase):
  @parameterized.parameters(
    ('<s>two one', _START, [_START, 3, 2]),
    ('two one', _START, [_START, 3, 2]),
    ('<s><s>two', _START, [_START, _START, 3]),
    ('', _START, [_START]),
    ('two', None, [3]),
    # An ordinary token with the id of a start token is text.
    ('two', 3, [3, 3]),
  )
  def test_a_start_token_of_the_text_is_not_doubled(self, text, start, ids):
    made = tokenizers.Tokenizer(
      tokenizers.models.WordLevel({'<s>': _START, 'one': 2, 'two': 3}, 'one')
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.add_special_tokens(['<s>'])
    words = tokenizer_codec.TokenizerCodec(made)
    model = types.SimpleNamespace(
      settings=types.SimpleNamespace(sos_id=start),
      codecs=types.SimpleNamespace(words=words),
    )
    for chosen in {}, {'add_special_tokens': True}:
      request = completion_pb2.CompleteRequest(**chosen)
      got = asked.with_start(words.encode(text), model, request)
      self.assertEqual(got.tolist(), ids)
    # The prompt of a chat template stays as it is.
    request = completion_pb2.TokenizeRequest(add_special_tokens=False)
    got = asked.with_start(words.encode(text), model, request)
    self.assertEqual(got.tolist(), words.encode(text).tolist())


if __name__ == '__main__':
  absltest.main()
