"""Tests collecting answers from messages, and formats of log-probabilities."""

from absl.testing import absltest

from saxml_ext.http.protocol import answers
from saxml_ext.http.protocol import chat
from saxml_ext.http.protocol import completions
from saxml_ext.protobuf import completion_pb2

_EURO = '€'.encode()
# Two tokens form one character, and the last token ends the answer.
_TOKENS = [
  completion_pb2.Token(utf8=_EURO[:1], logprob=-1),
  completion_pb2.Token(
    text='€',
    utf8=_EURO[1:],
    logprob=-2,
    alternatives=[
      completion_pb2.Alternative(text='a', logprob=-0.5),
      completion_pb2.Alternative(utf8=_EURO[1:], logprob=-2),
      completion_pb2.Alternative(text='a', logprob=-3),
      completion_pb2.Alternative(utf8=_EURO[1:2], logprob=-4),
    ],
  ),
  completion_pb2.Token(text='b', logprob=-0.25),
]


def _choice(index, logprob, tokens):
  return completion_pb2.Choice(
    index=index,
    text=str(index),
    tokens=[completion_pb2.Token(token_id=i) for i in range(tokens)],
    finish_reason=completion_pb2.FINISH_REASON_STOP,
    logprob=logprob,
  )


class CollectedTest(absltest.TestCase):
  def test_the_best_have_the_most_log_probability_per_token(self):
    collected = answers.Collected()
    # By sum, the order is 1, 0, 2. Per token, it is 2, 0, 1.
    collected.add(
      completion_pb2.CompleteResponse(
        choices=[_choice(0, -4, 4), _choice(1, -3, 2), _choice(2, -5, 10)]
      )
    )
    self.assertEqual([a.text for a in collected.best(2)], ['2', '0'])
    self.assertEqual([a.index for a in collected.best(2)], [0, 1])
    self.assertEqual([a.text for a in collected.best(3)], ['0', '1', '2'])

  def test_usage_is_of_all_prompts(self):
    parts = [
      completion_pb2.Usage(prompt_tokens=p, completion_tokens=c)
      for p, c in ((1, 10), (2, 20))
    ]
    self.assertEqual(
      answers.total_usage(parts),
      {'prompt_tokens': 3, 'completion_tokens': 30, 'total_tokens': 33},
    )


class LogprobsTest(absltest.TestCase):
  def test_completions(self):
    self.assertEqual(
      completions.logprobs(_TOKENS, 5),
      {
        # The texts of the tokens form the text of the answer.
        'tokens': ['', '€', 'b'],
        'token_logprobs': [-1, -2, -0.25],
        'top_logprobs': [
          {'': -1},
          {'a': -0.5, '€': -2, 'bytes:\\x82': -4},
          {'b': -0.25},
        ],
        'text_offset': [5, 5, 6],
      },
    )

  def test_chat(self):
    first, second, third = chat.logprobs(_TOKENS)['content']
    self.assertEqual(first['bytes'] + second['bytes'], list(_EURO))
    self.assertEqual(third['bytes'], [98])
    self.assertEqual(second['top_logprobs'][0]['token'], 'a')
    self.assertEqual(third['top_logprobs'], [])


if __name__ == '__main__':
  absltest.main()
