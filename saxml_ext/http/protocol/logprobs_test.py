"""Tests of the two forms of log-probabilities."""

from absl.testing import absltest

from saxml_ext.http.protocol import logprobs
from saxml_ext.protobuf import completion_pb2

_EURO = '€'.encode()
# A character in two tokens, and one that ends the answer.
_TOKENS = [
  completion_pb2.Token(utf8=_EURO[:1], logprob=-1),
  completion_pb2.Token(
    text='€',
    utf8=_EURO[1:],
    logprob=-2,
    alternatives=[
      completion_pb2.Alternative(text='a', logprob=-0.5),
      completion_pb2.Alternative(text='a', logprob=-3),
    ],
  ),
  completion_pb2.Token(text='b', logprob=-0.25),
]


class LogprobsTest(absltest.TestCase):
  def test_completions(self):
    self.assertEqual(
      logprobs.of_completion(_TOKENS, 5),
      {
        'tokens': ['bytes:\\xe2', '€', 'b'],
        'token_logprobs': [-1, -2, -0.25],
        'top_logprobs': [
          {'bytes:\\xe2': -1},
          {'a': -0.5, '€': -2},
          {'b': -0.25},
        ],
        'text_offset': [5, 5, 6],
      },
    )

  def test_chat(self):
    first, second, third = logprobs.of_chat(_TOKENS)['content']
    self.assertEqual(first['bytes'] + second['bytes'], list(_EURO))
    self.assertEqual(third['bytes'], [98])
    self.assertEqual(second['top_logprobs'][0]['token'], 'a')
    self.assertEqual(third['top_logprobs'], [])


if __name__ == '__main__':
  absltest.main()
