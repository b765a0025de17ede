"""Tests of joins over gRPC, with a real location file."""

import asyncio
from concurrent import futures
import queue
import threading
from unittest import mock

from absl.testing import absltest
import grpc

from saxml_ext.common import cell
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import admin_pb2_grpc
from saxml_ext.server import membership

_CELL = '/sax/test'
_TIMEOUT = 300


class _Admin(admin_pb2_grpc.AdminServicer):
  """An admin server that records the servers that join."""

  def __init__(self):
    self.joins = queue.Queue()
    self.answers = threading.Event()
    self.answers.set()
    self._server = None
    self.port = 0

  def start(self, port: int = 0) -> None:
    self._server = grpc.server(futures.ThreadPoolExecutor(2))
    admin_pb2_grpc.add_AdminServicer_to_server(self, self._server)
    self.port = self._server.add_insecure_port(f'127.0.0.1:{port}')
    self._server.start()

  def stop(self) -> None:
    self._server.stop(None).wait()

  def Join(self, request, context):
    self.joins.put(request)
    self.answers.wait(_TIMEOUT)
    return admin_pb2.JoinResponse()


class MembershipTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.root = self.create_tempdir().full_path
    self.request = admin_pb2.JoinRequest(
      address='127.0.0.1:1',
      model_server=admin_pb2.ModelServer(servable_model_paths=['a.B']),
    )
    self._begin(interval=0.05)

  def _begin(self, interval: float) -> None:
    self.member = membership.Membership(
      self.root, _CELL, self.request, interval=interval
    )
    self.loop = asyncio.new_event_loop()
    self.task = self.loop.create_task(self.member.run())
    self.thread = threading.Thread(target=self._run)
    self.thread.start()
    self.addCleanup(self._end)

  def _run(self) -> None:
    with self.assertRaises(asyncio.CancelledError):
      self.loop.run_until_complete(self.task)
    self.loop.close()

  def _end(self) -> None:
    if self.thread.is_alive():
      self.loop.call_soon_threadsafe(self.task.cancel)
    self.thread.join(_TIMEOUT)
    self.assertFalse(self.thread.is_alive())

  def _admin(self) -> _Admin:
    admin = _Admin()
    admin.start()
    self.addCleanup(admin.stop)
    return admin

  def _locate(self, admin: _Admin) -> None:
    cell.write_location(
      self.root,
      _CELL,
      admin_pb2.Location(location=f'127.0.0.1:{admin.port}'),
    )

  def test_server_joins_repeatedly(self):
    admin = self._admin()
    self._locate(admin)
    for _ in range(3):
      self.assertEqual(admin.joins.get(timeout=_TIMEOUT), self.request)

  def test_server_follows_the_location(self):
    first, second = self._admin(), self._admin()
    self._locate(first)
    first.joins.get(timeout=_TIMEOUT)
    self._locate(second)
    second.joins.get(timeout=_TIMEOUT)

  def test_server_joins_a_new_address_before_the_interval_ends(self):
    self._end()
    interval = 4 * _TIMEOUT
    with mock.patch.object(membership, '_LOOKS', 100 * interval):
      self._begin(interval)
      first, second = self._admin(), self._admin()
      self._locate(first)
      first.joins.get(timeout=_TIMEOUT)
      self._locate(second)
      second.joins.get(timeout=_TIMEOUT)
      self.assertTrue(first.joins.empty())

  def test_server_follows_the_location_during_a_pending_join(self):
    first, second = self._admin(), self._admin()
    first.answers.clear()
    self.addCleanup(first.answers.set)
    self._locate(first)
    first.joins.get(timeout=_TIMEOUT)
    self._locate(second)
    second.joins.get(timeout=_TIMEOUT / 3)

  def test_server_finds_an_admin_restarted_at_the_same_address(self):
    admin = self._admin()
    self._locate(admin)
    admin.joins.get(timeout=_TIMEOUT)
    admin.stop()
    while not admin.joins.empty():
      admin.joins.get()
    admin.start(admin.port)
    admin.joins.get(timeout=_TIMEOUT)

  def test_server_leaves_with_its_reason(self):
    admin = self._admin()
    self._locate(admin)
    admin.joins.get(timeout=_TIMEOUT)
    leaving = asyncio.run_coroutine_threadsafe(
      self.member.leave('no host'), self.loop
    )
    leaving.result(_TIMEOUT)
    while not admin.joins.get(timeout=_TIMEOUT).leaving:
      pass
    # If the server still runs, its further joins also report that it leaves.
    for _ in range(2):
      self.assertEqual(admin.joins.get(timeout=_TIMEOUT).leaving, 'no host')

  def test_membership_may_announce_another_server(self):
    self._end()
    admin = self._admin()
    self._locate(admin)
    member = membership.Membership(
      self.root, _CELL, admin_pb2.JoinRequest(address='127.0.0.1:2')
    )
    asyncio.run(member.leave('it hangs'))
    join = admin.joins.get(timeout=_TIMEOUT)
    self.assertEqual((join.address, join.leaving), ('127.0.0.1:2', 'it hangs'))

  def test_server_leaves_without_an_admin(self):
    self._end()
    member = membership.Membership(self.root, _CELL, admin_pb2.JoinRequest())
    asyncio.run(member.leave('nobody hears it'))
    admin = self._admin()
    self._locate(admin)
    admin.stop()
    asyncio.run(member.leave('nobody hears it'))


if __name__ == '__main__':
  absltest.main()
