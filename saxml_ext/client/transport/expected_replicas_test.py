"""Tests of what to expect for a model that has no replica."""

from absl.testing import absltest

from saxml_ext.client.transport import expected_replicas
from saxml_ext.client.transport import model_detail

_FAILED = model_detail.Replica('x:1', 'FAILED', 'no such checkpoint')
_LOADING = model_detail.Replica('y:1', 'LOADING', '')
_RESTARTING = model_detail.Replica('y:1', 'UNKNOWN', 'does not answer')
_MISSING = model_detail.Replica('', 'MISSING', 'no room')


def _detail(
  *replicas: model_detail.Replica, wanted: int = 1
) -> model_detail.ModelDetail:
  return model_detail.ModelDetail(
    'p.A', 'None', wanted, 0, {}, '/sax/test/m', replicas=replicas
  )


class OutlookTest(absltest.TestCase):
  def judge(self, *replicas: model_detail.Replica) -> str:
    return expected_replicas.Outlook().judge(_detail(*replicas), 0.0)

  def test_failed_everywhere(self):
    self.assertEqual(self.judge(_FAILED), 'x:1: FAILED (no such checkpoint)')
    self.assertEqual(
      self.judge(_FAILED, _MISSING),
      'x:1: FAILED (no such checkpoint); MISSING (no room)',
    )

  def test_one_that_may_still_come(self):
    self.assertEqual(self.judge(_LOADING), '')
    self.assertEqual(self.judge(_FAILED, _LOADING), '')
    self.assertEqual(self.judge(_RESTARTING, _MISSING), '')

  def test_none_wanted(self):
    why = expected_replicas.Outlook().judge(_detail(wanted=0), 0.0)
    self.assertIn('0 replicas', why)
    self.assertIn('saxutil update -replicas=1 /sax/test/m', why)

  def test_stock_admin_server_does_not_tell(self):
    judge = expected_replicas.Outlook().judge
    self.assertEqual(judge(_detail(), 0.0), '')
    self.assertEqual(judge(_detail(), 1000.0), '')

  def test_missing_server_is_waited_for(self):
    judge = expected_replicas.Outlook().judge
    self.assertEqual(judge(_detail(_MISSING), 10.0), '')
    self.assertEqual(judge(_detail(_MISSING), 14.9), '')
    self.assertEqual(judge(_detail(_MISSING), 15.0), 'MISSING (no room)')

  def test_missing_server_is_waited_for_anew_after_one_was_there(self):
    judge = expected_replicas.Outlook().judge
    self.assertEqual(judge(_detail(_MISSING), 10.0), '')
    self.assertEqual(judge(_detail(_LOADING), 12.0), '')
    self.assertEqual(judge(_detail(_MISSING), 16.0), '')
    self.assertNotEqual(judge(_detail(_MISSING), 21.0), '')


if __name__ == '__main__':
  absltest.main()
