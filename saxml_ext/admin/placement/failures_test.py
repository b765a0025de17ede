"""Tests of failed loads and of the pauses after them."""

from unittest import mock

from absl.testing import absltest

from saxml_ext.admin.placement import failures


class FailuresTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.now = 1000.0
    self.enterContext(
      mock.patch.object(failures.time, 'monotonic', lambda: self.now)
    )
    self.failures = failures.Failures()

  def test_nothing_failed(self):
    self.assertEqual(self.failures.wait(), 0.0)
    self.assertEqual(self.failures.count('a:1'), 0)

  def test_pause_doubles_from_a_second_to_a_minute(self):
    pauses = []
    for _ in range(9):
      self.failures.add('a:1', 'why')
      pauses.append(self.failures.wait())
    self.assertEqual(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60])

  def test_failures_of_all_servers_count(self):
    for address in ('a:1', 'b:1', 'c:1'):
      self.failures.add(address, 'why')
    self.assertEqual(self.failures.wait(), 4.0)

  def test_pause_passes(self):
    self.failures.add('a:1', 'why')
    self.now += 0.75
    self.assertEqual(self.failures.wait(), 0.25)
    self.now += 10.0
    self.assertEqual(self.failures.wait(), 0.0)

  def test_what_is_known_of_each_server(self):
    self.failures.add('b:1', 'first')
    self.failures.add('a:1', '')
    self.failures.add('b:1', 'second')
    self.failures.explain('a:1', 'told later')
    self.assertEqual(
      self.failures.items(),
      [
        ('a:1', failures.Failure('told later', 1)),
        ('b:1', failures.Failure('second', 2)),
      ],
    )
    self.assertEqual(self.failures.count('b:1'), 2)
    self.failures.forget('b:1')
    self.assertEqual(self.failures.count('b:1'), 0)
    self.assertEqual(self.failures.wait(), 1.0)
    self.failures.clear()
    self.assertEqual(self.failures.wait(), 0.0)


if __name__ == '__main__':
  absltest.main()
