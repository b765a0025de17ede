from absl.testing import absltest
from absl.testing import parameterized

from harness.loadgen import runner
from harness.loadgen import sut


def _counts(issued: int, done: int, silence: float) -> sut.Counts:
  return sut.Counts(issued, done, issued - done, 400.0, silence)


class SilenceTest(parameterized.TestCase):
  @parameterized.parameters(
    (64, 20, 24.0),  # The limit has not passed.
    (20, 20, 99.0),  # No sample is unanswered.
    (64, 0, 290.0),  # The model may still compile.
  )
  def test_goes_on(self, issued, done, silence):
    self.assertIsNone(runner.silence(_counts(issued, done, silence), 25.0))

  def test_a_system_that_answered_is_gone(self):
    self.assertStartsWith(
      runner.silence(_counts(64, 20, 26.0), 25.0),
      'no answer for 26 s (limit 25 s) with 44 requests in flight and 20 of 64',
    )

  @parameterized.parameters((25.0, 301.0, '300'), (900.0, 901.0, '900'))
  def test_a_system_that_never_answered_is_distinguished(
    self, limit, waited, message
  ):
    reason = runner.silence(_counts(64, 0, waited), limit)
    self.assertIn(f'no answer at all within {waited:.0f} s', reason)
    self.assertIn(f'(limit {message} s to the first one)', reason)
    self.assertIn('still compiling its programs', reason)


if __name__ == '__main__':
  absltest.main()
