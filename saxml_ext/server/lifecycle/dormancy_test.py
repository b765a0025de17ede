"""Tests of `Dormancy`."""

from absl.testing import absltest

from saxml_ext.common import errors
from saxml_ext.server.lifecycle import entry as entry_lib


class DormancyTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.now = 100.0

  def _dormancy(self, early_reject: bool) -> entry_lib.Dormancy:
    return entry_lib.Dormancy(early_reject, clock=lambda: self.now)

  def test_dormant_server_refuses_requests(self):
    dormancy = self._dormancy(early_reject=True)
    dormancy.check()
    self.assertEqual(dormancy.reason, '')
    dormancy.begin('it was asked to stop')
    with self.assertRaisesRegex(errors.Unavailable, 'asked to stop'):
      dormancy.check()
    self.assertEqual(dormancy.reason, 'it was asked to stop')

  def test_dormant_server_accepts_requests_by_default(self):
    dormancy = self._dormancy(early_reject=False)
    dormancy.begin('it was asked to stop')
    dormancy.check()
    self.assertEqual(dormancy.rate(), 0)

  def test_rate_covers_the_last_ten_seconds(self):
    dormancy = self._dormancy(early_reject=True)
    dormancy.begin('it was asked to stop')
    for _ in range(5):
      with self.assertRaises(errors.Unavailable):
        dormancy.check()
    self.assertEqual(dormancy.rate(), 0.5)
    self.now += 10
    self.assertEqual(dormancy.rate(), 0)


if __name__ == '__main__':
  absltest.main()
