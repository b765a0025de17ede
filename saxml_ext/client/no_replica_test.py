"""Tests requests to models that currently have no replica."""

from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from saxml_ext.client import sax
from saxml_ext.client.testing import fake_cell
from saxml_ext.client.transport import address_watcher
from saxml_ext.client.transport import admin_client
from saxml_ext.common import errors
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import common_pb2

_MODEL = fake_cell.MODEL
# With this timeout, waiting to the end would fail with another error.
_LONG = sax.ModelOptions(timeout=300)
_REASON = "checkpoint '/x' is no directory"


class NoReplicaTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.cell = fake_cell.FakeCell(self.create_tempdir().full_path)
    self.addCleanup(self.cell.stop)
    sax.SetRoot(self.cell.root)
    self.published = self.cell.admin.models[_MODEL]
    self.lm = sax.Model(_MODEL).LM()

  def tell(self, *replicas: admin_pb2.Replica) -> None:
    """Sets the complete list of replicas that the admin server reports."""
    new = admin_pb2.PublishedModel()
    new.CopyFrom(self.published)
    del new.replicas[:]
    new.replicas.extend(replicas)
    self.cell.admin.models[_MODEL] = self.published = new

  def fail_on(self, address: str) -> admin_pb2.Replica:
    return admin_pb2.Replica(
      address=address, status=common_pb2.FAILED, reason=_REASON
    )

  def wait_for_looks(self, count: int) -> None:
    """Waits until the client has requested the replicas' state this often."""
    requests = self.cell.admin.requests
    while sum(isinstance(r, admin_pb2.ListRequest) for r in requests) < count:
      self.cell.admin.pause()

  @parameterized.parameters('Generate', 'GenerateAsync', 'GenerateStream')
  def test_failed_load_fails_the_request_at_once(self, method: str):
    self.tell(self.fail_on('x:1'))
    with self.assertRaisesRegex(
      errors.FailedPrecondition,
      f'no replica of {_MODEL} can answer: x:1: FAILED .{_REASON}',
    ):
      if method == 'GenerateStream':
        self.lm.GenerateStream('hi', lambda last, items: None, _LONG)
      elif method == 'GenerateAsync':
        self.lm.GenerateAsync('hi', _LONG).result(300)
      else:
        self.lm.Generate('hi', _LONG)

  def test_no_replica_requested(self):
    self.published.model.requested_num_replicas = 0
    with self.assertRaisesRegex(errors.FailedPrecondition, 'with 0 replicas'):
      self.lm.Generate('hi', _LONG)

  def test_no_server(self):
    self.tell(admin_pb2.Replica(reason='no server can serve p.A'))
    with mock.patch.object(address_watcher, '_NO_SERVER_SECONDS', 0.5):
      with self.assertRaisesRegex(
        errors.FailedPrecondition, 'no server can serve p.A'
      ):
        self.lm.Generate('hi', _LONG)

  @parameterized.parameters(
    admin_pb2.Replica(address='x:1', status=common_pb2.LOADING),
    admin_pb2.Replica(address='x:1', reason='it does not answer'),
    admin_pb2.Replica(reason='no server has joined yet'),
  )
  def test_expected_replica_is_waited_for(self, replica: admin_pb2.Replica):
    self.tell(replica)
    waiting = self.lm.GenerateAsync('hi', _LONG)
    self.wait_for_looks(2)
    self.assertFalse(waiting.done())
    self.cell.add_server()
    self.assertEqual(waiting.result(300), [('hi', -1.0)])

  def test_failure_during_the_wait_fails_the_request(self):
    self.tell(admin_pb2.Replica(address='x:1', status=common_pb2.LOADING))
    waiting = self.lm.GenerateAsync('hi', _LONG)
    self.wait_for_looks(1)
    self.tell(self.fail_on('x:1'))
    with self.assertRaisesRegex(errors.FailedPrecondition, _REASON):
      waiting.result(300)

  def test_model_with_earlier_answers_is_waited_for(self):
    server = self.cell.add_server()
    self.assertEqual(self.lm.Generate('hi', _LONG), [('hi', -1.0)])
    # The replica's engine breaks down; the admin server will have it loaded
    # again.
    self.tell(self.fail_on(server.address))
    self.cell.admin.remove_address(_MODEL, server.address)
    watcher = address_watcher.get(admin_client.get(fake_cell.CELL), _MODEL)
    while watcher.count():
      self.cell.admin.pause()
    waiting = self.lm.GenerateAsync('hi', _LONG)
    self.wait_for_looks(3)
    self.assertFalse(waiting.done())
    with self.assertRaisesRegex(errors.DeadlineExceeded, _REASON):
      self.lm.Generate('hi', sax.ModelOptions(timeout=1))
    self.cell.admin.add_address(_MODEL, server.address)
    self.assertEqual(waiting.result(300), [('hi', -1.0)])

  def test_request_after_the_repair_is_answered(self):
    self.tell(self.fail_on('x:1'))
    with self.assertRaises(errors.FailedPrecondition):
      self.lm.Generate('hi', _LONG)
    self.tell()
    self.cell.add_server()
    while True:
      try:
        self.assertEqual(self.lm.Generate('hi', _LONG), [('hi', -1.0)])
        return
      except errors.FailedPrecondition:
        self.cell.admin.pause()  # The error is repeated for a second.


if __name__ == '__main__':
  absltest.main()
