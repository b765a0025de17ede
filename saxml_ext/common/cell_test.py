"""Compares a cell's files with recorded ones."""

import os
from unittest import mock

from absl.testing import absltest

from saxml_ext.common import cell
from saxml_ext.common import errors
from saxml_ext.common import storage
from saxml_ext.common.testing import golden
from saxml_ext.protobuf import admin_pb2

_CELL = '/sax/test'
_CONFIG = admin_pb2.Config(fs_root='/f', admin_acl='acl/all')


def _read_state(fs_root: str, cell_id: str) -> admin_pb2.State:
  data = storage.read_bytes(cell.state_path(fs_root, cell_id))
  return admin_pb2.State.FromString(data)


class CellTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.root = self.create_tempdir().full_path

  def test_recorded_files_are_read(self):
    readers = {
      'config.proto': cell.read_config,
      'location.proto': cell.read_location,
      'state.proto': _read_state,
    }
    for row in golden.load('files.json'):
      root_name, _, path = row['path'].partition('/')
      root = os.path.join(self.root, root_name)
      full_path = os.path.join(root, path)
      storage.make_dirs(os.path.dirname(full_path))
      storage.write_bytes(full_path, bytes.fromhex(row['hex']))
      with self.subTest(row['label']):
        got = readers[os.path.basename(path)](root, _CELL)
        self.assertEqual(got.DESCRIPTOR.full_name, row['message'])
        self.assertLen(got.SerializeToString(), len(row['hex']) // 2)

  def test_written_files_are_the_recorded_ones(self):
    config = admin_pb2.Config(fs_root='/data/sax-fs-root', admin_acl='acl/all')
    location = admin_pb2.Location(location='127.0.0.1:19000')
    cell.write_config(self.root, _CELL, config)
    cell.write_location(self.root, _CELL, location)
    rows = {row['label']: row for row in golden.load('files.json')}
    for label in ('after admin_config', 'location written'):
      path = rows[label]['path'].removeprefix('sax-root/')
      got = storage.read_bytes(os.path.join(self.root, path))
      self.assertEqual(got.hex(), rows[label]['hex'])

  def test_missing_cell_is_reported(self):
    with self.assertRaisesRegex(
      errors.FailedPrecondition, '/sax/test" is not a directory.*admin_config'
    ):
      cell.read_location(self.root, _CELL)

  def test_missing_location_is_a_failed_precondition(self):
    cell.write_config(self.root, _CELL, _CONFIG)
    with self.assertRaisesRegex(
      errors.FailedPrecondition,
      'no admin server of /sax/test was ever started: .*location.proto does not'
      ' exist. Start admin_server --sax_cell=/sax/test',
    ):
      cell.read_location(self.root, _CELL)
    for text in ('', 'Admin server has not been started yet: wait'):
      location = admin_pb2.Location(location=text)
      cell.write_location(self.root, _CELL, location)
      with self.assertRaisesRegex(errors.FailedPrecondition, 'admin_server'):
        cell.read_location(self.root, _CELL)

  def test_corrupt_file_is_named(self):
    cell.write_config(self.root, _CELL, _CONFIG)
    storage.write_bytes(cell.config_path(self.root, _CELL), b'\xff\xff')
    with self.assertRaisesRegex(errors.Internal, 'config.proto .2 bytes'):
      cell.read_config(self.root, _CELL)

  def test_invalid_cell_id_is_refused(self):
    with self.assertRaises(errors.InvalidArgument):
      cell.read_config(self.root, '/sax/../etc')

  def test_sax_root(self):
    with mock.patch.dict(os.environ, {'SAX_ROOT': '/env'}):
      self.assertEqual(cell.sax_root('/flag'), '/flag')
      self.assertEqual(cell.sax_root(), '/env')
      del os.environ['SAX_ROOT']
      with self.assertRaisesRegex(errors.FailedPrecondition, 'SAX_ROOT'):
        cell.sax_root('')

  def test_list_cells(self):
    cell.write_config(self.root, '/sax/b', _CONFIG)
    cell.write_config(self.root + '/', '/sax/a', _CONFIG)
    self.assertEqual(cell.list_cells(self.root), ['/sax/a', '/sax/b'])


class EnvironmentTest(absltest.TestCase):
  def set(self, name: str, value: str) -> None:
    self.enterContext(mock.patch.dict(os.environ, {name: value}))

  def test_flag_overrides_variable(self):
    self.set(cell.CELL_VARIABLE, '/sax/env')
    self.set(cell.ADMIN_PORT_VARIABLE, '1')
    self.assertEqual(cell.text_setting('/sax/f', cell.CELL_VARIABLE), '/sax/f')
    self.assertEqual(cell.port_setting(0, cell.ADMIN_PORT_VARIABLE, 2), 0)

  def test_variable_applies_without_flag(self):
    self.set(cell.CELL_VARIABLE, '/sax/env')
    self.set(cell.ADMIN_PORT_VARIABLE, '65535')
    self.assertEqual(cell.text_setting(None, cell.CELL_VARIABLE), '/sax/env')
    self.assertEqual(
      cell.port_setting(None, cell.ADMIN_PORT_VARIABLE, 2), 65535
    )

  def test_missing_settings_have_defaults(self):
    for name in (cell.CELL_VARIABLE, cell.ADMIN_PORT_VARIABLE):
      self.set(name, '')
    self.assertEqual(cell.text_setting(None, cell.CELL_VARIABLE), '')
    self.assertEqual(cell.port_setting(None, cell.ADMIN_PORT_VARIABLE, 2), 2)

  def test_invalid_port_is_refused(self):
    for text in ('http', '-1', '65536', '1e3', ' 1'):
      self.set(cell.ADMIN_PORT_VARIABLE, text)
      with self.assertRaisesRegex(
        errors.InvalidArgument, f'SAX_ADMIN_SERVER_PORT="{text}".*0 to 65535'
      ):
        cell.port_setting(None, cell.ADMIN_PORT_VARIABLE, 2)


if __name__ == '__main__':
  absltest.main()
