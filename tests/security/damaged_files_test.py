"""Damages every file of a cell that decides on rights or state.

No damage may admit a caller who was not admitted before, neither in a running
program nor at a start. The log or the error must name the file.
"""

import asyncio
from collections.abc import Callable, Iterator
import contextlib
import itertools
import logging
import os
import shutil
import time
import unittest

from absl.testing import absltest
import grpc

from saxml_ext.admin import cell_admin
from saxml_ext.common import cell as cell_lib
from saxml_ext.common import errors
from saxml_ext.common import net
from saxml_ext.common.security import access
from saxml_ext.common.security import acl_file
from saxml_ext.common.security import api_key
from saxml_ext.common.security import api_keys
from saxml_ext.common.security import tls
from saxml_ext.common.security.testing import cell_certs
from saxml_ext.protobuf import admin_pb2
from tests.chaos import processes

_CELL = '/sax/test'
_CONFIG = admin_pb2.Config(admin_acl='acl/admins')
_LISTS = b'{"acl/admins": ["alice"], "acl/servers": ["s"], "acl/t": ["bob"]}'
_PEOPLE = ('', 'alice', 'bob', 's', 'eve')
_HUGE = 2**33
_STRANGER = 12345
_TIMEOUT = 60

Rights = frozenset[tuple[str, str]]


def _cut(path: str, size: int) -> None:
  os.truncate(path, size)


def _write(path: str, data: bytes) -> None:
  with open(path, 'wb') as f:
    f.write(data)


def _fifo(path: str) -> None:
  os.remove(path)
  os.mkfifo(path)


def _link(path: str) -> None:
  os.remove(path)
  os.symlink('/dev/zero', path)


def _damages(path: str) -> Iterator[tuple[str, Callable[[str], None]]]:
  """Yields the names and functions of all damages to a file."""
  size = os.path.getsize(path)
  # The files with fields are short, so this includes all ends of fields.
  steps = range(1, size) if size < 200 else range(1, size, size // 40)
  for i in steps:
    yield f'cut to {i} bytes', lambda path, i=i: _cut(path, i)
  yield 'empty', lambda path: _cut(path, 0)
  yield 'junk', lambda path: _write(path, b'\xff\x00junk\n' * 9)
  yield 'zeros', lambda path: _write(path, bytes(size))
  yield 'missing', os.remove
  yield 'FIFO', _fifo
  yield 'device', _link
  yield 'huge', lambda path: os.truncate(path, _HUGE)
  if os.geteuid() == 0:
    yield 'another owner', lambda path: os.chown(path, _STRANGER, -1)


class DamagedFilesTest(unittest.IsolatedAsyncioTestCase, absltest.TestCase):
  def setUp(self):
    super().setUp()
    os.environ[net.LOOPBACK_VARIABLE] = '1'
    self.dir = self.create_tempdir().full_path
    self.root, self.fs_root = f'{self.dir}/root', f'{self.dir}/fs'
    _CONFIG.fs_root = self.fs_root
    cell_lib.write_config(self.root, _CELL, _CONFIG)
    self.config = cell_lib.config_path(self.root, _CELL)
    self.lists = acl_file.path_of(self.root, _CELL)
    _write(self.lists, _LISTS)

  @contextlib.contextmanager
  def damaged(
    self, path: str, damage: Callable[[str], None]
  ) -> Iterator[list[str]]:
    """Damages a file during the block, and yields the lines of the log."""
    with open(path, 'rb') as f:
      good = f.read()
    with self.assertLogs(level='DEBUG') as logged:
      logging.debug('begin')
      damage(path)
      yield logged.output
    with contextlib.suppress(FileNotFoundError):
      os.remove(path)
    _write(path, good)

  def rights(self, opened: access.Access) -> Rights:
    calls = {
      'publish': lambda n: opened.check_admin(n, 'x'),
      'update': lambda n: opened.check_admin(n, 'x', 'acl/t'),
      'join': lambda n: opened.check_server(n, 'x'),
      'generate': lambda n: opened.check(n, 'acl/t', 'x'),
    }
    granted = set()
    for who, (what, call) in itertools.product(_PEOPLE, calls.items()):
      with contextlib.suppress(errors.PermissionDenied):
        call((who,) if who else ())
        granted.add((who, what))
    return frozenset(granted)

  def opened(self) -> access.Access:
    return access.Access.from_cell(self.root, _CELL)

  def test_running_programs_keep_the_last_good_rights(self):
    running = self.opened()
    before = self.rights(running)
    self.assertIn(('alice', 'publish'), before)
    for path in (self.config, self.lists):
      for name, damage in _damages(path):
        with self.subTest(f'{os.path.basename(path)} {name}'):
          with self.damaged(path, damage) as log:
            running.refresh()
            self.assertEqual(self.rights(running), before)
            self.assertIn(f'{path} cannot be used', '\n'.join(log))
          running.refresh()

  def test_started_programs_grant_no_more_than_before(self):
    before = self.rights(self.opened())
    for path in (self.config, self.lists):
      for name, damage in _damages(path):
        with self.subTest(f'{os.path.basename(path)} {name}'):
          with self.damaged(path, damage) as log:
            started = self.opened()
            self.assertLessEqual(self.rights(started), before)
            if name != 'missing':
              with self.assertRaisesRegex(errors.SaxError, path):
                started.check_usable()
            else:
              started.check_usable()
              self.assertIn(f'{path} does not exist', '\n'.join(log))

  def test_admin_server_keeps_rights_or_ends(self):
    cell = self.enter_context(processes.Cell(f'{self.dir}/processes'))
    config = admin_pb2.Config(fs_root=cell.fs_root, admin_acl='acl/admins')
    cell_lib.write_config(cell.root, _CELL, config)
    path = cell_lib.config_path(cell.root, _CELL)
    lists = acl_file.path_of(cell.root, _CELL)
    _write(lists, _LISTS)
    process = cell.start(processes.ADMIN_SERVER, ['--http_port=-1'])

    def publish() -> grpc.StatusCode:
      with self.assertRaises(grpc.RpcError) as caught:
        cell.call('Publish', admin_pb2.PublishRequest(model=self.model('m')))
      return caught.exception.code()

    self.assertIs(publish(), grpc.StatusCode.PERMISSION_DENIED)
    before_acl = 2 + len(cell.fs_root)
    _cut(path, before_acl)
    _cut(lists, 0)
    end = time.monotonic() + _TIMEOUT
    while process.log.read_text().count('cannot be used, so the old') < 2:
      self.assertLess(time.monotonic(), end, process.log.read_text())
      time.sleep(0.1)
    self.assertIs(publish(), grpc.StatusCode.PERMISSION_DENIED)
    process.end()
    for damage in (lambda path: None, lambda path: _cut(path, 0), os.remove):
      damage(path)
      with self.assertRaisesRegex(RuntimeError, path):
        cell.start(processes.ADMIN_SERVER, ['--http_port=-1'])
    cell_lib.write_config(cell.root, _CELL, config)
    with self.assertRaisesRegex(RuntimeError, lists):
      cell.start(processes.ADMIN_SERVER, ['--http_port=-1'])

  def test_location_is_refused(self):
    location = admin_pb2.Location(location='127.0.0.1:10000')
    cell_lib.write_location(self.root, _CELL, location)
    path = cell_lib.location_path(self.root, _CELL)
    for name, damage in _damages(path):
      if name.startswith('cut') and name >= 'cut to 10':
        continue
      with self.subTest(name), self.damaged(path, damage):
        with self.assertRaisesRegex(errors.SaxError, path):
          cell_lib.read_location(self.root, _CELL)

  def test_damaged_key_files_admit_no_other_caller(self):
    path = f'{self.dir}/keys'
    names = {api_key.add(path, who): who for who in ('alice', 'bob')}
    running = api_keys.Keys(path)
    self.addCleanup(running.close)

    def known(keys: api_keys.Keys) -> Rights:
      return frozenset((k, keys.name(k)) for k in names if keys.name(k))

    before = known(running)
    damages = dict(_damages(path))
    damages['writable'] = lambda path: os.chmod(path, 0o606)
    for name, damage in damages.items():
      with self.subTest(name):
        with self.damaged(path, damage) as log:
          running.refresh()
          self.assertLessEqual(known(running), before)
          if name in ('junk', 'FIFO', 'huge', 'another owner', 'writable'):
            self.assertIn(f'{path} cannot be used', '\n'.join(log))
            self.assertEqual(known(running), before)
            with self.assertRaisesRegex(errors.InvalidArgument, path):
              api_keys.Keys(path)
            if name != 'junk':
              with self.assertRaises(OSError):
                api_key.add(path, 'eve')
        running.refresh()

  def test_key_directory_writable_by_others_is_refused(self):
    path = f'{self.dir}/open/keys'
    os.mkdir(os.path.dirname(path))
    os.chmod(os.path.dirname(path), 0o777)
    with self.assertRaisesRegex(OSError, 'other users may write it'):
      api_key.add(path, 'alice')
    os.chmod(os.path.dirname(path), 0o1777)
    api_key.add(path, 'alice')

  def test_tls_files_are_refused(self):
    certs = cell_certs.CellCerts(f'{self.dir}/tls').server()
    for path in (certs.cert_file, certs.key_file, certs.ca_file):
      damages = dict(_damages(path))
      damages['writable'] = lambda path: os.chmod(path, 0o666)
      for name, damage in damages.items():
        if name.startswith('cut'):
          continue  # Line ends at the end of a file have no meaning.
        with self.subTest(f'{os.path.basename(path)} {name}'):
          with self.damaged(path, damage):
            with self.assertRaisesRegex(errors.InvalidArgument, path):
              tls.KeyFiles(
                certs.cert_file, certs.key_file, certs.ca_file
              ).read()

  async def lead(self) -> list[admin_pb2.Model]:
    """Starts an admin server, publishes a model; returns those before."""
    server = cell_admin.AdminServer(self.root, _CELL, 0)
    await server.start()
    try:
      leading = asyncio.ensure_future(server.leading())
      failing = asyncio.ensure_future(server.failure())
      done, _ = await asyncio.wait(
        (leading, failing),
        timeout=_TIMEOUT,
        return_when=asyncio.FIRST_COMPLETED,
      )
      leading.cancel()
      if failing in done:
        failing.result()
      assert done, 'the server neither leads nor ends'
      assert server.controller is not None
      models = [e.model for e in server.controller.entries()]
      if not models:
        await server.controller.publish(self.model('m'))
      return models
    finally:
      await server.stop()

  def model(self, name: str) -> admin_pb2.Model:
    return admin_pb2.Model(
      model_id=f'{_CELL}/{name}',
      model_path='p.A',
      checkpoint_path='None',
      admin_acl='acl/admins',
      acls={'items': {'lm.generate': 'acl/t'}},
    )

  async def test_state_is_restored_or_refused(self):
    await self.lead()
    [before] = await self.lead()
    directory = f'{self.fs_root}{_CELL}'
    good = f'{self.dir}/good'
    shutil.copytree(directory, good)
    names = ['state.proto', 'state.proto.prev', 'state.proto.sum']
    claim = next(n for n in os.listdir(good) if n.startswith('leader-'))
    for name in (*names, claim):
      path = f'{directory}/{name}'
      for title, damage in _damages(f'{good}/{name}'):
        if title.startswith('cut') and int(title.split()[2]) % 16:
          continue  # Each start takes some time.
        with self.subTest(f'{name} {title}'):
          shutil.rmtree(directory)
          shutil.copytree(good, directory)
          with self.assertLogs('absl', level='INFO') as logged:
            damage(path)
            self.assertEqual(await self.lead(), [before])
          if name in names[:2] and title != 'missing':
            self.assertIn(path, '\n'.join(logged.output))

  def test_program_without_fs_root_writes_nothing(self):
    with self.assertRaisesRegex(errors.InvalidArgument, 'fs_root'):
      cell_lib.write_config(
        self.root, '/sax/new', admin_pb2.Config(admin_acl='acl/all')
      )
    self.assertFalse(os.path.exists(f'{self.root}/sax/new'))
    with self.assertRaisesRegex(errors.InvalidArgument, 'empty'):
      cell_lib.cell_dir('', _CELL)


if __name__ == '__main__':
  absltest.main()
