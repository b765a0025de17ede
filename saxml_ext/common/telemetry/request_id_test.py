"""Tests of the names of requests."""

import contextvars

from absl.testing import absltest

from saxml_ext.common.telemetry import request_id


class RequestIdTest(absltest.TestCase):
  def test_takes_the_id_that_a_call_came_with(self):
    metadata = (('a', 'b'), (request_id.KEY, 'mine-1'))
    self.assertEqual(request_id.of(metadata), 'mine-1')

  def test_makes_one_where_none_or_a_bad_one_came(self):
    bad = ('', 'two words', 'a\nb', 'x' * 129, b'bytes')
    made = [request_id.of(((request_id.KEY, text),)) for text in bad]
    made.append(request_id.of(()))
    self.assertLen(set(made), len(made))
    for text in made:
      self.assertRegex(text, r'^[0-9a-f]{16}$')

  def test_is_of_its_context(self):
    def inner() -> str:
      request_id.use('inner')
      return request_id.current()

    token = request_id.use('outer')
    self.assertEqual(contextvars.copy_context().run(inner), 'inner')
    self.assertEqual(request_id.current(), 'outer')
    request_id.restore(token)
    self.assertEqual(request_id.current(), '')


if __name__ == '__main__':
  absltest.main()
