"""Tests of answers that are put together from the cell's messages."""

from absl.testing import absltest

from saxml_ext.http.protocol import growing_answer
from saxml_ext.protobuf import completion_pb2


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
    collected = growing_answer.Collected()
    # By sum 1, 0, 2 is the order; per token it is 2, 0, 1.
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
      growing_answer.usage_of(parts),
      {'prompt_tokens': 3, 'completion_tokens': 30, 'total_tokens': 33},
    )


if __name__ == '__main__':
  absltest.main()
