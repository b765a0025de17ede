from concurrent import futures

from absl.testing import absltest
from absl.testing import parameterized

from harness.systems import cell


class _Reply:
  def __init__(self):
    self.answer = self.error = None

  def done(self, answer):
    self.answer = answer

  def failed(self, error):
    self.error = error


def _reply(result=None, error=None, end_ids=()) -> _Reply:
  """What a system replies whose model answers like this."""
  future: futures.Future = futures.Future()
  if error:
    future.set_exception(error)
  else:
    future.set_result(result)
  sent = []

  def generate(prompt: str) -> futures.Future:
    sent.append(prompt)
    return future

  reply = _Reply()
  cell.CellSystem(generate, ['5', '6'], end_ids).answer(1, reply)
  assert sent == ['6']
  return reply


class CellSystemTest(parameterized.TestCase):
  @parameterized.parameters(
    ('7,8', [7, 8]),
    ('7,8,50256', [7, 8]),
    ('7,8,50256,50256', [7, 8]),
    ('7,50256,8', [7]),
    ('50256', []),
    ('', []),
  )
  def test_answers_end_before_the_first_end_id(self, text, expected):
    answer = _reply([(text, 0.0), ('0', -2.0)], end_ids={50256}).answer
    self.assertEqual(answer.data.tolist(), expected)
    self.assertEqual(answer.data.dtype, 'int64')
    self.assertEqual(answer.tokens, len(expected))

  def test_failed_call(self):
    error = RuntimeError('connection refused')
    self.assertIs(_reply(error=error).error, error)

  def test_text_instead_of_ids(self):
    self.assertRegex(
      str(_reply([('Some words', 0.0)]).error),
      "returned 'Some words', not comma-separated.*tokenized serving params",
    )

  def test_no_answer(self):
    self.assertRegex(str(_reply([]).error), 'returned no answer')


if __name__ == '__main__':
  absltest.main()
