"""Tests of the pauses between retries."""

from absl.testing import absltest

from saxml_ext.common import backoff


class BackoffTest(absltest.TestCase):
  def test_pauses_grow_up_to_the_limit(self):
    doubling = backoff.Backoff(first=1.0, growth=2.0, most=60.0)
    self.assertEqual(
      [doubling.pause(n) for n in (0, 1, 2, 3, 6, 7, 10**9)],
      [0, 1, 2, 4, 32, 60, 60],
    )

  def test_constant_pause_stays_constant(self):
    self.assertEqual(backoff.Backoff(0.5, 1.0, 0.5).pause(10**9), 0.5)

  def test_jitter_spreads_pauses_around_their_length(self):
    pauses = [
      backoff.Backoff(2.0, 2.0, 4.0, jitter=0.5).pause(3) for _ in range(200)
    ]
    self.assertGreaterEqual(min(pauses), 2.0)
    self.assertLessEqual(max(pauses), 6.0)
    self.assertLess(min(pauses), 3.5)
    self.assertGreater(max(pauses), 4.5)

  def test_settings_without_backoff_are_refused(self):
    for first, growth, most, jitter in (
      (0.0, 2.0, 1.0, 0.0),
      (1.0, 0.5, 1.0, 0.0),
      (2.0, 2.0, 1.0, 0.0),
      (1.0, 2.0, 4.0, 1.0),
    ):
      with self.assertRaises(ValueError):
        backoff.Backoff(first, growth, most, jitter)


class LogOnceTest(absltest.TestCase):
  def test_repeated_messages_are_not_logged(self):
    logged = []
    say = backoff.LogOnce(lambda form, text: logged.append(form % text))
    for text in ('a', 'a', 'b', 'a', '', 'a', ''):
      say(text)
    self.assertEqual(logged, ['a', 'b', 'a', 'a'])


if __name__ == '__main__':
  absltest.main()
