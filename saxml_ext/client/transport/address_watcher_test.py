"""Tests watching a model's addresses."""

import time
from unittest import mock

from absl.testing import absltest

from saxml_ext.client.testing import fake_cell
from saxml_ext.client.transport import address_watcher
from saxml_ext.client.transport import admin_client
from saxml_ext.client.transport import blocking
from saxml_ext.common import errors
from saxml_ext.common.testing import golden
from saxml_ext.protobuf import admin_pb2


def _response(server_id: str, next_seqno: int, **result):
  return admin_pb2.WatchLocResponse(
    admin_server_id=server_id,
    result=admin_pb2.WatchResult(next_seqno=next_seqno, **result),
  )


def _add(address: str) -> admin_pb2.WatchResult.Mutation:
  return admin_pb2.WatchResult.Mutation(addition=address)


def _remove(address: str) -> admin_pb2.WatchResult.Mutation:
  return admin_pb2.WatchResult.Mutation(deletion=address)


class AddressSetTest(absltest.TestCase):
  def test_changes_are_applied_in_order(self):
    known = address_watcher.AddressSet()
    changes = known.apply(_response('a', 2, changelog=[_add('x'), _add('y')]))
    self.assertEqual(changes, ['+ x', '+ y'])
    changes = known.apply(_response('a', 3, changelog=[_remove('x')]))
    self.assertEqual(changes, ['- x'])
    self.assertEqual(known.addresses, {'y'})
    self.assertEqual((known.admin_server_id, known.seqno), ('a', 3))

  def test_fullset_comes_before_the_changelog(self):
    known = address_watcher.AddressSet()
    known.apply(_response('a', 1, changelog=[_add('old')]))
    changes = known.apply(
      _response(
        'a',
        9,
        has_fullset=True,
        values=['y', 'x'],
        changelog=[_remove('x')],
      )
    )
    self.assertEqual(changes, ['Reset', '+ x', '+ y', '- x'])
    self.assertEqual(known.addresses, {'y'})

  def test_changelog_of_another_server_starts_over(self):
    known = address_watcher.AddressSet()
    known.apply(_response('a', 1, changelog=[_add('old')]))
    changes = known.apply(_response('b', 1, changelog=[_add('new')]))
    self.assertEqual(changes, ['Reset', '+ new'])
    self.assertEqual(known.addresses, {'new'})

  def test_recorded_answers(self):
    rows = [
      row
      for row in golden.load('rpc_pairs.json')
      if row['step'].startswith('idle after update replicas=')
      and row['method'] == '/sax.Admin/WatchLoc'
    ]
    self.assertLen(rows, 2)
    changes = {}
    for row in rows:
      known = address_watcher.AddressSet()
      request = admin_pb2.WatchLocRequest.FromString(
        bytes.fromhex(row['request_hex'])
      )
      known.admin_server_id = request.admin_server_id
      known.seqno = request.seqno
      response = admin_pb2.WatchLocResponse.FromString(
        bytes.fromhex(row['response_hex'])
      )
      changes[request.seqno] = known.apply(response)
      self.assertEqual(known.seqno, request.seqno + 1)
    self.assertEqual(
      changes, {3: ['- 127.0.0.1:19012'], 4: ['+ 127.0.0.1:19012']}
    )


class AddressWatcherTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.cell = fake_cell.FakeCell(self.create_tempdir().full_path)
    self.addCleanup(self.cell.stop)
    client = admin_client.AdminClient(
      self.cell.root, fake_cell.CELL, blocking.TRANSPORT
    )
    self.watcher = address_watcher.AddressWatcher(client, fake_cell.MODEL)

  def wait_for(self, addresses: set[str]) -> None:
    deadline = time.monotonic() + fake_cell.PATIENCE
    while time.monotonic() < deadline:
      if self.watcher.addresses(fake_cell.PATIENCE) == addresses:
        return
      time.sleep(0.01)
    self.fail(f'{addresses} not seen, but {self.watcher.addresses(0)}')

  def test_changes_arrive(self):
    self.cell.admin.add_address(fake_cell.MODEL, 'x:1')
    self.wait_for({'x:1'})
    self.cell.admin.add_address(fake_cell.MODEL, 'y:1')
    self.wait_for({'x:1', 'y:1'})
    self.cell.admin.remove_address(fake_cell.MODEL, 'x:1')
    self.wait_for({'y:1'})

  def test_no_replica(self):
    with self.assertRaisesRegex(errors.Unavailable, 'no replica of /sax/test'):
      self.watcher.addresses(0.05)

  def test_unpublished_model_fails_and_comes_back(self):
    self.cell.admin.add_address(fake_cell.MODEL, 'x:1')
    self.wait_for({'x:1'})
    model = self.cell.admin.models.pop(fake_cell.MODEL)
    with self.assertRaisesRegex(errors.NotFound, 'not found'):
      for _ in range(1000):
        self.watcher.addresses(fake_cell.PATIENCE)
        time.sleep(0.01)
    self.cell.admin.models[fake_cell.MODEL] = model
    # The error is repeated for some time. Then the server is asked again.
    with mock.patch.object(address_watcher, '_STICKY_SECONDS', 3600):
      with self.assertRaises(errors.NotFound):
        self.watcher.addresses(fake_cell.PATIENCE)
      # After this process has published the model, the server is asked at once.
      self.watcher.forgive()
      self.wait_for({'x:1'})

  def test_an_error_is_not_repeated_for_long(self):
    model = self.cell.admin.models.pop(fake_cell.MODEL)
    with self.assertRaises(errors.NotFound):
      self.watcher.addresses(fake_cell.PATIENCE)
    self.cell.admin.models[fake_cell.MODEL] = model
    self.cell.admin.add_address(fake_cell.MODEL, 'x:1')
    with mock.patch.object(address_watcher, '_STICKY_SECONDS', 0):
      self.wait_for({'x:1'})

  def test_new_admin_is_found(self):
    self.cell.admin.add_address(fake_cell.MODEL, 'x:1')
    self.wait_for({'x:1'})
    models = self.cell.admin.models
    self.cell.admin.stop()
    # Without an admin server, the last known addresses stay valid.
    self.assertEqual(self.watcher.addresses(0), {'x:1'})
    self.cell.admin = fake_cell.FakeAdmin(self.cell.root, 'b', models)
    self.cell.admin.add_address(fake_cell.MODEL, 'y:1')
    self.wait_for({'y:1'})


_FAILED = admin_client.Replica('x:1', 'FAILED', 'no such checkpoint')
_LOADING = admin_client.Replica('y:1', 'LOADING', '')
_RESTARTING = admin_client.Replica('y:1', 'UNKNOWN', 'does not answer')
_MISSING = admin_client.Replica('', 'MISSING', 'no room')


def _detail(
  *replicas: admin_client.Replica, expected: int = 1
) -> admin_client.ModelDetail:
  return admin_client.ModelDetail(
    'p.A', 'None', expected, 0, {}, '/sax/test/m', replicas=replicas
  )


class WaitPolicyTest(absltest.TestCase):
  def judge(self, *replicas: admin_client.Replica) -> str:
    return address_watcher.WaitPolicy().judge(_detail(*replicas), 0.0)

  def test_model_failed_on_all_servers(self):
    self.assertEqual(self.judge(_FAILED), 'x:1: FAILED (no such checkpoint)')
    self.assertEqual(
      self.judge(_FAILED, _MISSING),
      'x:1: FAILED (no such checkpoint); MISSING (no room)',
    )

  def test_loading_replica_is_no_failure(self):
    self.assertEqual(self.judge(_LOADING), '')
    self.assertEqual(self.judge(_FAILED, _LOADING), '')
    self.assertEqual(self.judge(_RESTARTING, _MISSING), '')

  def test_no_replica_requested(self):
    why = address_watcher.WaitPolicy().judge(_detail(expected=0), 0.0)
    self.assertIn('0 replicas', why)
    self.assertIn('saxutil update -replicas=1 /sax/test/m', why)

  def test_stock_admin_server_reports_no_reasons(self):
    judge = address_watcher.WaitPolicy().judge
    self.assertEqual(judge(_detail(), 0.0), '')
    self.assertEqual(judge(_detail(), 1000.0), '')

  def test_missing_server_is_waited_for(self):
    judge = address_watcher.WaitPolicy().judge
    self.assertEqual(judge(_detail(_MISSING), 10.0), '')
    self.assertEqual(judge(_detail(_MISSING), 14.9), '')
    self.assertEqual(judge(_detail(_MISSING), 15.0), 'MISSING (no room)')

  def test_missing_server_is_waited_for_after_a_loss(self):
    judge = address_watcher.WaitPolicy().judge
    self.assertEqual(judge(_detail(_MISSING), 10.0), '')
    self.assertEqual(judge(_detail(_LOADING), 12.0), '')
    self.assertEqual(judge(_detail(_MISSING), 16.0), '')
    self.assertNotEqual(judge(_detail(_MISSING), 21.0), '')


if __name__ == '__main__':
  absltest.main()
