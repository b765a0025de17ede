"""Tests of which request a model's state goes back to."""

from absl.testing import absltest

from saxml_ext.admin.modelet import origins
from saxml_ext.common.telemetry import request_id


class OriginsTest(absltest.TestCase):
  def note(self, known: origins.Origins, model_id: str, named: str) -> None:
    token = request_id.use(named)
    known.note(model_id)
    request_id.restore(token)

  def test_newest_request_counts(self):
    known = origins.Origins()
    self.assertEqual(known.metadata('m'), ())
    self.note(known, 'm', 'r1')
    self.note(known, 'm', 'r2')
    self.assertEqual(known.metadata('m'), ((request_id.KEY, 'r2'),))
    self.note(known, 'm', '')
    self.assertEqual(known.metadata('m'), ())

  def test_does_not_grow_for_ever(self):
    known = origins.Origins()
    for i in range(1500):
      self.note(known, f'm{i}', f'r{i}')
    self.assertEqual(known.metadata('m0'), ())
    self.assertEqual(known.metadata('m1499'), ((request_id.KEY, 'r1499'),))


if __name__ == '__main__':
  absltest.main()
