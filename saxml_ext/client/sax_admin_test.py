"""Tests the client's functions for cells, against a cell on loopback."""

import threading

from absl.testing import absltest

from saxml_ext.client import sax
from saxml_ext.client.testing import fake_cell
from saxml_ext.common import errors
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import common_pb2

_PATIENCE = fake_cell.PATIENCE


class AdminCallsTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.cell = fake_cell.FakeCell(self.create_tempdir().full_path)
    self.addCleanup(self.cell.stop)
    sax.SetRoot(self.cell.root)

  def test_publish_and_list(self):
    sax.Publish('/sax/test/n', 'p.B', '/ckpt', 2, {'K': '[1, 2]'})
    self.assertEqual(
      self.cell.admin.models['/sax/test/n'].model,
      admin_pb2.Model(
        model_id='/sax/test/n',
        model_path='p.B',
        checkpoint_path='/ckpt',
        requested_num_replicas=2,
        overrides={'K': '[1, 2]'},
      ),
    )
    self.assertEqual(sax.List('/sax/test/n'), ('p.B', '/ckpt', 0))
    self.assertCountEqual(
      sax.ListAll('/sax/test'), ['/sax/test/m', '/sax/test/n']
    )
    self.assertEqual(
      sax.ListDetail('/sax/test/n'),
      sax.ModelDetail(
        'p.B', '/ckpt', 2, 0, {'K': '[1, 2]'}, model_id='/sax/test/n'
      ),
    )
    with self.assertRaisesRegex(errors.AlreadyExists, 'already exists'):
      sax.Publish('/sax/test/n', 'p.B', '/ckpt', 2)
    sax.Unpublish('/sax/test/n')
    with self.assertRaisesRegex(errors.NotFound, '/sax/test/n not found'):
      sax.List('/sax/test/n')

  def test_update_keeps_overrides_and_drops_acls(self):
    model = self.cell.admin.models[fake_cell.MODEL].model
    model.acls.items['lm.score'] = ''
    sax.Update(fake_cell.MODEL, 'p.A', '/new', 3)
    got = self.cell.admin.models[fake_cell.MODEL].model
    self.assertEqual(got.checkpoint_path, '/new')
    self.assertEqual(got.requested_num_replicas, 3)
    self.assertEqual(dict(got.overrides), {'BATCH_SIZE': '4'})
    self.assertEmpty(got.acls.items)

  def test_update_of_one_field_keeps_the_others(self):
    model = self.cell.admin.models[fake_cell.MODEL].model
    model.acls.items['lm.score'] = ''
    expected = admin_pb2.Model()
    expected.CopyFrom(model)
    sax.UpdateReplicas(fake_cell.MODEL, 3)
    expected.requested_num_replicas = 3
    self.assertEqual(model, expected)
    sax.UpdateCheckpoint(fake_cell.MODEL, '/new')
    expected.checkpoint_path = '/new'
    self.assertEqual(model, expected)
    with self.assertRaisesRegex(errors.InvalidArgument, 'replicas -1'):
      sax.UpdateReplicas(fake_cell.MODEL, -1)

  def test_details(self):
    published = self.cell.admin.models[fake_cell.MODEL]
    published.model.method_names.append('lm.score')
    published.model.acls.items['lm.score'] = 'acl/a'
    published.modelet_addresses.append('10.0.0.1:1')
    published.replicas.add(address='10.0.0.1:1', status=common_pb2.LOADING)
    published.replicas.add(reason='no room')
    detail = sax.ListDetail(fake_cell.MODEL)
    self.assertEqual(sax.ListAllDetails('/sax/test'), [detail])
    self.assertEqual(detail.method_names, ('lm.score',))
    self.assertEqual(detail.acls, {'lm.score': 'acl/a'})
    self.assertEqual(detail.addresses, ('10.0.0.1:1',))
    self.assertEqual(
      list(map(str, detail.replicas)),
      ['10.0.0.1:1: LOADING', 'MISSING (no room)'],
    )

  def test_watch_addresses(self):
    self.cell.admin.add_address(fake_cell.MODEL, 'x:1')
    changes = sax.WatchAddresses(fake_cell.MODEL)
    self.assertEqual(next(changes), ['+ x:1'])
    self.cell.admin.remove_address(fake_cell.MODEL, 'x:1')
    self.assertEqual(next(changes), ['- x:1'])

  def test_stats(self):
    self.cell.admin.stats.model_server_type_stats.add(
      chip_type='CHIP_TYPE_CPU',
      chip_topology='CHIP_TOPOLOGY_1',
      num_replicas=2,
    )
    row = ('CHIP_TYPE_CPU', 'CHIP_TOPOLOGY_1', 2)
    self.assertEqual(sax.Stats('/sax/test'), [row])
    self.assertEqual(sax.Stats('/sax/test/m'), [row])
    self.assertEqual(
      [request.model_id for request in self.cell.admin.requests],
      ['', '/sax/test/m'],
    )

  def test_wait_for_ready(self):
    with self.assertRaisesRegex(errors.DeadlineExceeded, 'WaitForReady of'):
      sax.WaitForReady(fake_cell.MODEL, 1, sax.AdminOptions(timeout=0.1))
    threading.Timer(0.1, self.cell.add_server).start()
    sax.WaitForReady(fake_cell.MODEL, 1, sax.AdminOptions(timeout=_PATIENCE))

  def test_busy_admin_server_gets_the_call_again(self):
    self.cell.admin.busy = 3
    self.assertEqual(sax.ListAll('/sax/test'), [fake_cell.MODEL])
    self.assertLen(self.cell.admin.requests, 4)

  def test_deadline_names_the_last_error(self):
    sax.ListAll('/sax/test')  # This opens a connection.
    self.cell.admin.busy = 10**6
    with self.assertRaisesRegex(
      errors.DeadlineExceeded, 'within 1 s in .* UNAVAILABLE: busy'
    ):
      sax.ListAll('/sax/test', sax.AdminOptions(timeout=1))

  def test_new_admin_is_found(self):
    sax.ListAll('/sax/test')
    self.cell.admin.stop()
    self.cell.admin = fake_cell.FakeAdmin(self.cell.root)
    self.assertEqual(sax.ListAll('/sax/test', sax.AdminOptions(10)), [])

  def test_bad_ids(self):
    for call in (sax.List, sax.ListAll, sax.Unpublish, sax.Stats, sax.GetACL):
      with self.assertRaises(errors.InvalidArgument):
        call('nonsense')
    with self.assertRaisesRegex(errors.FailedPrecondition, 'admin_config'):
      sax.ListAll('/sax/other')

  def test_acls(self):
    self.assertEqual(sax.GetACL('/sax/test'), 'acl/all')
    self.assertEqual(sax.GetACL(fake_cell.MODEL), '')
    self.assertEqual(sax.GetACL(fake_cell.MODEL, 'lm.score'), '')
    sax.SetACL(fake_cell.MODEL, 'acl/a')
    sax.SetACL(fake_cell.MODEL, 'acl/b', 'lm.score')
    self.assertEqual(sax.GetACL(fake_cell.MODEL), 'acl/a')
    self.assertEqual(sax.GetACL(fake_cell.MODEL, 'lm.score'), 'acl/b')
    self.assertEqual(sax.GetACL(fake_cell.MODEL, 'all'), {'lm.score': 'acl/b'})
    sax.SetACL(fake_cell.MODEL, '', 'lm.score')
    self.assertEqual(sax.GetACL(fake_cell.MODEL, 'all'), {})
    with self.assertRaises(errors.InvalidArgument):
      sax.SetACL(fake_cell.MODEL, 'acl/b', 'lm.nope')
    sax.SetACL(fake_cell.MODEL, '', 'lm.nope')  # There is no ACL to remove.
    with self.assertRaisesRegex(errors.InvalidArgument, 'has no method "all"'):
      sax.GetACL('/sax/test', 'all')
    with self.assertRaisesRegex(errors.InvalidArgument, 'has no method "a"'):
      sax.SetACL('/sax/test', 'acl/x', 'a')
    with self.assertRaises(errors.InvalidArgument):
      sax.SetACL('/sax/test', '')
    with self.assertRaises(errors.Unimplemented):
      sax.SetACL('/sax/test', 'acl/x')


if __name__ == '__main__':
  absltest.main()
