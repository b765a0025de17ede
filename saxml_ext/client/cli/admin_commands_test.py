"""Tests the commands that list and change cells."""

import io
import os
import sys
import threading
from unittest import mock

from absl.testing import absltest

from saxml_ext.client.testing import fake_cell
from saxml_ext.client.testing import saxutil_fixture
from saxml_ext.common import cell as cell_files
from saxml_ext.common import storage
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import common_pb2
from saxml_ext.protobuf import modelet_pb2


class AdminCommandsTest(saxutil_fixture.SaxutilTest):
  def test_ls_sax(self):
    config = admin_pb2.Config(fs_root='/f', admin_acl='acl/all')
    cell_files.write_config(self.cell.root, '/sax/other', config)
    self.assertEqual(
      self.check(0, 'ls', '/sax'),
      '+---+-------+\n'
      '| # | CELL  |\n'
      '+---+-------+\n'
      '| 0 | other |\n'
      '| 1 | test  |\n'
      '+---+-------+\n',
    )
    self.assertEqual(
      self.check(0, 'ls', '-csv', '/sax'), '# #,Cell\n0,other\n1,test\n'
    )

  def test_ls_cell(self):
    model = self.cell.admin.models[fake_cell.MODEL].model
    model.method_names.extend(['lm.generate', 'lm.score'])
    self.check(0, 'publish', '/sax/test/b', 'p.B', 'None', '1')
    self.assertEqual(
      self.check(0, 'ls', '-status=false', '/sax/test'),
      '+---+----------+\n'
      '| # | MODEL ID |\n'
      '+---+----------+\n'
      '| 0 | b        |\n'
      '| 1 | m        |\n'
      '+---+----------+\n',
    )
    self.assertEqual(
      self.check(0, 'ls', '-csv', '-details', '/sax/test'),
      '# #,Model ID,Methods\n0,b,\n1,m,lm.generate, lm.score\n',
    )

  def test_ls_model(self):
    published = self.cell.admin.models[fake_cell.MODEL]
    address = self.cell.add_server().address
    published.model.method_names.append('lm.score')
    published.model.acls.items['lm.score'] = 'acl/a'
    out = self.check(0, 'ls', fake_cell.MODEL)
    self.assertStartsWith(
      out,
      '+-------+------------+-----------------+---------------+'
      '---------------------------+----------+\n'
      '| MODEL | MODEL PATH | CHECKPOINT PATH | # OF REPLICAS |'
      ' (SELECTED) REPLICAADDRESS | METHODS  |\n'
      '+-------+------------+-----------------+---------------+'
      '---------------------------+----------+\n'
      '| m     | p.A        | None            |             1 |'
      f' {address:25} | lm.score |\n',
    )
    # All replicas are loaded, so no status table follows.
    self.assertEndsWith(
      out,
      '+----------+-------+\n'
      '|  METHOD  |  ACL  |\n'
      '+----------+-------+\n'
      '| lm.score | acl/a |\n'
      '+----------+-------+\n',
    )
    self.assertEqual(
      self.check(0, 'ls', '-csv', '-acls=false', fake_cell.MODEL),
      '# Model,Model Path,Checkpoint Path,# of Replicas,(Selected) '
      f'ReplicaAddress,Methods\nm,p.A,None,1,{address},lm.score\n',
    )
    off = '-acls=false', '-details=false'
    self.check(1, 'ls', *off, fake_cell.MODEL)
    self.assertIn('nothing to print', self.stderr)
    self.check(1, 'ls', *off, '-status=false', fake_cell.MODEL)
    out = self.check(0, 'ls', *off, '-status', '-csv', fake_cell.MODEL)
    self.assertEqual(
      out, f'# Model,Replica,Status,Reason\nm,{address},LOADED,\n'
    )

  def test_ls_failures(self):
    self.check(1, 'ls', '/sax/test/nope')
    self.assertIn('/sax/test/nope not found', self.stderr)
    self.assertIn('Hint: `saxutil ls /sax/test` lists', self.stderr)
    self.check(1, 'ls', 'nonsense')
    self.check(1, 'ls', '/sax/nope')
    self.assertIn('is not a directory', self.stderr)
    self.assertIn(self.cell.root, self.stderr)
    self.assertNotIn('Hint', self.stderr)
    self.check(2, 'ls')

  def test_ls_shows_failures_that_servers_report(self):
    published = self.cell.admin.models[fake_cell.MODEL]
    published.model.requested_num_replicas = 3
    server = self.cell.add_server()
    server.status = common_pb2.ModelStatus.FAILED
    server.reason = 'no such checkpoint,\ntry another'
    lost = self.cell.add_server()
    lost.stop()
    out = self.check(0, 'ls', '-csv', '-status', '/sax/test')
    head, first, second, third = out.partition('# Model,')[2].splitlines()
    self.assertEqual(head, 'Replica,Status,Reason')
    self.assertEqual(
      first, f'm,{server.address},FAILED,no such checkpoint; try another'
    )
    self.assertStartsWith(second, f'm,{lost.address},UNKNOWN,UNAVAILABLE: ')
    self.assertEqual(third, 'm,,MISSING,only 2 of 3 replicas have a server')
    self.assertIn('| FAILED  | no such', self.check(0, 'ls', '/sax/test'))

  def test_ls_shows_failures_that_the_admin_server_reports(self):
    published = self.cell.admin.models[fake_cell.MODEL]
    published.modelet_addresses.append('10.0.0.1:1')
    published.replicas.add(address='10.0.0.1:1', status=common_pb2.LOADING)
    published.replicas.add(
      address='10.0.0.2:1', status=common_pb2.FAILED, reason='no space'
    )
    off = '-acls=false', '-details=false'
    out = self.check(0, 'ls', *off, '-status', fake_cell.MODEL)
    self.assertEqual(
      out,
      '+-------+------------+---------+----------+\n'
      '| MODEL |  REPLICA   | STATUS  |  REASON  |\n'
      '+-------+------------+---------+----------+\n'
      '| m     | 10.0.0.1:1 | LOADING |          |\n'
      '| m     | 10.0.0.2:1 | FAILED  | no space |\n'
      '+-------+------------+---------+----------+\n',
    )
    self.assertNotIn('LOADING', self.check(0, 'ls', '-csv', fake_cell.MODEL))

  def test_ls_shows_the_hosts_of_a_group(self):
    published = self.cell.admin.models[fake_cell.MODEL]
    published.modelet_addresses.append('10.0.0.1:1')
    published.replicas.add(
      address='10.0.0.1:1',
      status=common_pb2.LOADED,
      hosts=('tpu-0', 'tpu-1', 'tpu-2', 'tpu-3'),
    )
    table = (
      '+-------+------------+--------+--------+'
      '-------------------------------+\n'
      '| MODEL |  REPLICA   | STATUS | REASON |'
      '             HOSTS             |\n'
      '+-------+------------+--------+--------+'
      '-------------------------------+\n'
      '| m     | 10.0.0.1:1 | LOADED |        |'
      ' 4: tpu-0, tpu-1, tpu-2, tpu-3 |\n'
      '+-------+------------+--------+--------+'
      '-------------------------------+\n'
    )
    self.assertEndsWith(self.check(0, 'ls', fake_cell.MODEL), table)
    self.assertEndsWith(self.check(0, 'ls', '/sax/test'), table)
    self.assertNotIn('tpu-0', self.check(0, 'ls', '-csv', '/sax/test'))
    self.assertEndsWith(
      self.check(0, 'ls', '-csv', '-status', '/sax/test'),
      '# Model,Replica,Status,Reason,Hosts\n'
      'm,10.0.0.1:1,LOADED,,tpu-0 tpu-1 tpu-2 tpu-3\n',
    )
    published.replicas.add(
      address='10.0.0.9:1', status=common_pb2.FAILED, reason='no space'
    )
    out = self.check(0, 'ls', '-csv', '-status', fake_cell.MODEL)
    self.assertEndsWith(out, 'm,10.0.0.9:1,FAILED,no space,\n')

  def test_create_and_delete(self):
    fs_root = self.create_tempdir().full_path
    self.check(0, 'create', '/sax/new', fs_root, 'acl/all')
    self.assertEqual(
      cell_files.read_config(self.cell.root, '/sax/new'),
      admin_pb2.Config(fs_root=fs_root, admin_acl='acl/all'),
    )
    self.check(1, 'ls', '/sax/new')
    self.assertIn('Start admin_server', self.stderr)
    self.check(1, 'create', '/sax/new', fs_root, 'acl/all')
    self.check(2, 'create', '/sax/new', fs_root)
    self.check(1, 'create', '/sax/new', fs_root, '')
    self.check(1, 'create', '/sax/new', '', 'acl/all')
    self.check(1, 'create', 'new', fs_root, 'acl/all')
    state_path = cell_files.state_path(fs_root, '/sax/new')
    storage.make_dirs(os.path.dirname(state_path))
    storage.write_bytes(state_path, b'')
    for answer in ('n\n', 'x\n', ''):
      with mock.patch.object(sys, 'stdin', io.StringIO(answer)):
        self.check(1, 'delete', '/sax/new')
      self.assertIn('nothing was deleted', self.stderr)
    with mock.patch.object(sys, 'stdin', io.StringIO('Yes\n')):
      self.assertIn('(y|n)', self.check(0, 'delete', '/sax/new'))
    self.assertEqual(self.check(0, 'ls', '-csv', '/sax'), '# #,Cell\n0,test\n')
    self.assertFalse(os.path.exists(fs_root + '/sax/new'))
    self.check(1, 'delete', '/sax/new')

  def test_cell_with_an_admin_server_is_not_deleted(self):
    self.check(1, 'delete', '/sax/test')
    self.assertIn('Stop it first', self.stderr)
    self.check(0, 'getacl', '/sax/test')

  def test_save_and_export(self):
    server = self.cell.add_server()
    self.check(0, 'save', fake_cell.MODEL, '/ckpt/2')
    self.check(
      0,
      *('export', '-rng_seed_mode=fixed', '-signatures=a,b'),
      *(fake_cell.MODEL, 'lm.generate,lm.score', '/out'),
    )
    self.assertEqual(
      server.requests[0],
      modelet_pb2.SaveRequest(
        model_key=fake_cell.MODEL, checkpoint_path='/ckpt/2'
      ),
    )
    self.assertEqual(list(server.requests[1].signatures), ['a', 'b'])
    export = 'export', fake_cell.MODEL, 'lm.score', '/out'
    self.check(1, export[0], '-rng_seed_mode=dice', *export[1:])
    self.check(1, export[0], '-signatures=a,b', *export[1:])
    self.check(2, *export[:-1])
    self.check(2, 'save', fake_cell.MODEL)

  def test_export_ends_at_its_timeout(self):
    export = 'export', fake_cell.MODEL, 'lm.score', '/out'
    self.check(1, '-sax_timeout=100ms', *export)  # There is no server.

  def test_publish_and_unpublish(self):
    self.check(
      0,
      *('publish', '/sax/test/n', 'p.B', '/c', '2'),
      *('A=[1, 4]', 'B="x=y"', 'C='),
    )
    self.assertEqual(
      self.cell.admin.models['/sax/test/n'].model,
      admin_pb2.Model(
        model_id='/sax/test/n',
        model_path='p.B',
        checkpoint_path='/c',
        requested_num_replicas=2,
        overrides={'A': '[1, 4]', 'B': '"x=y"', 'C': ''},
      ),
    )
    self.check(1, 'publish', '/sax/test/n', 'p.B', '/c', '2')
    self.assertIn('`saxutil unpublish /sax/test/n` removes', self.stderr)
    self.check(0, 'unpublish', '/sax/test/n')
    self.check(1, 'unpublish', '/sax/test/n')
    self.check(1, 'publish', 'n', 'p.B', '/c', 'two')
    self.check(2, 'publish', '/sax/test/n', 'p.B', '/c', 'two')
    self.check(2, 'publish', '/sax/test/n', 'p.B', '/c', '2', 'A')
    self.check(2, 'publish', '/sax/test/n', 'p.B', '/c')

  def test_update(self):
    model = self.cell.admin.models[fake_cell.MODEL].model
    model.acls.items['lm.score'] = ''
    self.check(0, 'update', '-replicas=0', fake_cell.MODEL)
    self.assertEqual(model.requested_num_replicas, 0)
    self.check(0, 'update_checkpoint', fake_cell.MODEL, '/new')
    self.assertEqual(model.checkpoint_path, '/new')
    # All other fields are sent back as they were listed.
    self.assertEqual(dict(model.overrides), {'BATCH_SIZE': '4'})
    self.assertEqual(dict(model.acls.items), {'lm.score': ''})
    self.check(1, 'update', fake_cell.MODEL)
    self.assertIn('-replicas', self.stderr)

  def test_acls(self):
    cell, model = '/sax/test', fake_cell.MODEL
    self.assertEqual(self.check(0, 'getacl', cell), 'acl/all\n')
    self.assertEqual(
      self.check(0, 'getacl', model), 'No admin ACLs set for model.\n'
    )
    self.assertEqual(
      self.check(0, 'getacl', model, 'all'), 'No ACLs set for model.\n'
    )
    self.check(0, 'setacl', model, 'acl/a')
    self.check(0, 'setacl', model, 'lm.score', 'acl/b')
    self.assertEqual(self.check(0, 'getacl', model), 'acl/a\n')
    self.assertEqual(self.check(0, 'getacl', model, 'all'), 'lm.score: acl/b\n')
    self.assertEqual(self.check(0, 'getacl', model, 'lm.score'), 'acl/b\n')
    self.assertEqual(
      self.check(0, 'getacl', model, 'lm.embed'), 'No ACLs set for method.\n'
    )
    self.check(0, 'setacl', model, 'lm.nope', '')
    self.check(1, 'setacl', model, 'lm.nope', 'acl/a')
    self.check(1, 'setacl', cell, 'acl/a')
    self.check(1, 'setacl', cell, 'lm.score', 'acl/a')
    self.check(1, 'getacl', cell, 'lm.score')
    # A file without an ACL is incomplete, and must not look like one for all.
    storage.write_bytes(cell_files.config_path(self.cell.root, cell), b'')
    self.check(1, 'getacl', cell)

  def test_stats(self):
    self.cell.admin.stats.model_server_type_stats.add(
      chip_type='CHIP_TYPE_CPU',
      chip_topology='CHIP_TOPOLOGY_1',
      num_replicas=2,
    )
    self.assertEqual(
      self.check(0, 'stats', '-csv', '/sax/test'),
      '# Chip,Topology,# of Servers\nCHIP_TYPE_CPU,CHIP_TOPOLOGY_1,2\n',
    )

  def test_admin_server_never_started(self):
    os.unlink(cell_files.location_path(self.cell.root, '/sax/test'))
    for args in (('ls', '/sax/test'), ('lm.generate', fake_cell.MODEL, 'x')):
      self.check(1, *args)
      self.assertStartsWith(
        self.stderr, 'Error: no admin server of /sax/test was ever started'
      )
      self.assertNotIn('Hint', self.stderr)

  def test_flags_without_effect_are_refused(self):
    for words, message in (
      (('ls', '-acls=false', '/sax/test'), '-acls have no effect on a cell'),
      (('ls', '-status', '/sax'), '-status have no effect on all cells'),
      (('-sax_timeout=9s', 'watch', fake_cell.MODEL), '-sax_timeout=9s has no'),
    ):
      self.check(2, *words)
      self.assertIn(message, self.stderr)

  def test_watch_ends_when_the_model_is_unpublished(self):
    admin = self.cell.admin
    admin.add_address(fake_cell.MODEL, 'x:1')
    admin.add_address(fake_cell.MODEL, 'y:1')
    admin.remove_address(fake_cell.MODEL, 'x:1')

    def unpublish() -> None:
      admin.wait_for_watch(3)
      request = admin_pb2.UnpublishRequest(model_id=fake_cell.MODEL)
      admin.Unpublish(request, mock.Mock())

    threading.Thread(target=unpublish).start()
    self.assertEqual(
      self.check(1, 'watch', fake_cell.MODEL),
      '+ x:1\n+ y:1\n- x:1\nReset\n',
    )


if __name__ == '__main__':
  absltest.main()
