"""Tests of which request a model's state goes back to."""

from absl.testing import absltest

from saxml_ext.admin import controller
from saxml_ext.common.telemetry import tracing


class OriginsTest(absltest.TestCase):
  def note(self, known: controller.Origins, model_id: str, named: str) -> None:
    token = tracing.use_id(named)
    known.note(model_id)
    tracing.restore_id(token)

  def test_newest_request_counts(self):
    known = controller.Origins()
    self.assertEqual(known.metadata('m'), ())
    self.note(known, 'm', 'r1')
    self.note(known, 'm', 'r2')
    self.assertEqual(known.metadata('m'), ((tracing.REQUEST_ID, 'r2'),))
    self.note(known, 'm', '')
    self.assertEqual(known.metadata('m'), ())

  def test_does_not_grow_for_ever(self):
    known = controller.Origins()
    for i in range(1500):
      self.note(known, f'm{i}', f'r{i}')
    self.assertEqual(known.metadata('m0'), ())
    self.assertEqual(known.metadata('m1499'), ((tracing.REQUEST_ID, 'r1499'),))


if __name__ == '__main__':
  absltest.main()
