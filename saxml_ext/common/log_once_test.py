"""Tests of logging what is new."""

from absl.testing import absltest

from saxml_ext.common import log_once


class LogOnceTest(absltest.TestCase):
  def test_repetitions_are_left_out(self):
    logged = []
    say = log_once.LogOnce(lambda form, text: logged.append(form % text))
    for text in ('a', 'a', 'b', 'a', '', 'a', ''):
      say(text)
    self.assertEqual(logged, ['a', 'b', 'a', 'a'])


if __name__ == '__main__':
  absltest.main()
