"""Tests of the controller's queue, and of the requests that it stores."""

import asyncio
import unittest

from absl.testing import absltest

from saxml_ext.admin import controller
from saxml_ext.admin.modelet import modelets
from saxml_ext.common.telemetry import tracing
from saxml_ext.protobuf import admin_pb2


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

  def test_number_of_origins_is_limited(self):
    known = controller.Origins()
    for i in range(1500):
      self.note(known, f'm{i}', f'r{i}')
    self.assertEqual(known.metadata('m0'), ())
    self.assertEqual(known.metadata('m1499'), ((tracing.REQUEST_ID, 'r1499'),))


class EventsTest(unittest.IsolatedAsyncioTestCase, absltest.TestCase):
  async def test_failed_event_does_not_stop_the_queue(self):
    looks = []
    made = controller.Controller(
      admin_pb2.State(),
      lambda state: None,
      'id',
      lambda: not looks.append(None),
    )
    with self.assertLogs(level='ERROR') as logged:
      made._events.put_nowait(modelets.Forgotten(None))  # None has no address.
      while not logged.records:
        await asyncio.sleep(0.01)
    self.assertIn('failed to handle an event', logged.output[0])
    self.assertEmpty(looks)
    made._events.put_nowait(None)
    async with asyncio.timeout(30):
      while not looks:  # The reconciler acts on later events.
        await asyncio.sleep(0.01)
    await made.close()


if __name__ == '__main__':
  absltest.main()
