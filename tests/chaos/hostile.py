"""Tests ids and paths that lead out of the cell, in all calls with one."""

from collections.abc import Iterator, Sequence
import dataclasses
import http.client
import os
import pathlib
import re

import grpc

from saxml_ext.protobuf import admin_pb2
from tests.chaos import processes

_PROGRAM = 'tests.chaos.audited_admin'
_NAMES = (
  '..',
  '.',
  '../..',
  '../../../../etc/passwd',
  'a/../../b',
  'a/..',
  './a',
  'a//b',
  '/etc/passwd',
  '//etc',
  '%2e%2e',
  '%2e%2e%2fetc',
  '..%2f..%2fetc',
  '..%c0%af..',
  '%00',
  '..\\..\\etc',
  'C:\\x',
  '\\\\host\\share',
  'a\0b',
  '\0',
  'a\nb',
  'a\n',
  'a\r',
  'a\tb',
  ' a',
  'a ',
  'a b',
  '',
  'A',
  '-a',
  '0',
  'a.b',
  'a:b',
  'a;b',
  '$(id)',
  '`id`',
  '${HOME}',
  '~',
  '~root',
  '*',
  'a?',
  'a#b',
  "a'b",
  'a"b',
  '<b>',
  'a|b',
  'a&b',
  'é',
  'аdmin',  # The first letter is Cyrillic.
  'a\u200bb',
  'a\u202eb',
  '．．／etc',
  'ａ',
  '\ufeffa',
  '../' * 1365 + 'a',
  'a/' * 2048,
  'A' * 4096,
  'link',  # See below: a symbolic link out of the cell.
  'state.proto',
  'file:///etc/passwd',
  'gs://bucket/a',
)
# This text is invalid as other ids. It is a valid name for a model, but that
# model does not exist.
_VALID_NAMES = frozenset({'link'})
_PATHS = tuple(
  p for p in _NAMES if not re.fullmatch(r'[A-Za-z0-9/_.%:=|+-]+', p, re.ASCII)
)
_REFUSALS = frozenset(
  {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND}
)


@dataclasses.dataclass
class Result:
  """The result of a run.

  Attributes:
    names: The number of hostile texts.
    calls: The number of calls with them.
    accepted: The calls that should have been rejected but were not.
    watched: The files in the cell's directories that the server opened.
    opened: The files outside of the cell's directories that the server opened.
  """

  names: int = len(_NAMES)
  calls: int = 0
  watched: int = 0
  accepted: list[str] = dataclasses.field(default_factory=list)
  opened: list[str] = dataclasses.field(default_factory=list)


def _model(**fields) -> admin_pb2.Model:
  return admin_pb2.Model(
    **{
      'model_id': processes.CELL + '/m',
      'model_path': 'p.A',
      'checkpoint_path': 'None',
      **fields,
    }
  )


def _requests(name: str) -> Iterator[tuple[str, object]]:
  for model_id in (
    f'{processes.CELL}/{name}',
    f'/sax/{name}/m',
    f'{name}{processes.CELL}/m',
    name,
  ):
    if model_id == f'{processes.CELL}/m':
      continue  # This name is valid.
    hostile = _model(model_id=model_id)
    if name not in _VALID_NAMES:
      yield 'Publish', admin_pb2.PublishRequest(model=hostile)
    yield 'Update', admin_pb2.UpdateRequest(model=hostile)
    yield 'Unpublish', admin_pb2.UnpublishRequest(model_id=model_id)
    yield 'WatchLoc', admin_pb2.WatchLocRequest(model_id=model_id)
    yield 'WaitForReady', admin_pb2.WaitForReadyRequest(model_id=model_id)
    if model_id:  # Without an id, the call lists all models.
      yield 'List', admin_pb2.ListRequest(model_id=model_id)
      yield 'Stats', admin_pb2.StatsRequest(model_id=model_id)
  if name in _PATHS:
    yield 'Publish', admin_pb2.PublishRequest(model=_model(model_path=name))
    yield (
      'Publish',
      admin_pb2.PublishRequest(model=_model(checkpoint_path=name)),
    )
  yield (
    'Join',
    admin_pb2.JoinRequest(address=name, model_server=admin_pb2.ModelServer()),
  )


def run(directory: str) -> Result:
  """Tries all names in all calls, and on the status pages."""
  result = Result()
  with processes.Cell(directory) as cell:
    opened = pathlib.Path(directory) / 'opened'
    admin = cell.start(
      _PROGRAM, ['--http_port=0'], {'AUDIT_FILE': os.fspath(opened)}
    )
    os.symlink('/etc', f'{cell.root}/sax/test/link')
    os.symlink('/etc', f'{cell.fs_root}/sax/test/link')
    cell.wait_for_leader()
    opened.write_bytes(b'')  # Files that it opens from now on count.
    for name in _NAMES:
      for method, request in _requests(name):
        result.calls += 1
        try:
          processes.call(admin.address, method, request, 5.0)
          refused = False
        except grpc.RpcError as e:
          refused = e.code() in _REFUSALS
        if not refused:
          result.accepted.append(f'{method} {name[:60]!r}')
    port = re.search(r'http://localhost:(\d+)', admin.log.read_text())[1]
    for name in _NAMES:
      result.calls += 1
      page = _fetch(int(port), name)
      if b'root:' in page or b'Traceback' in page:
        result.accepted.append(f'GET {name[:60]!r}')
    cell.models()  # The server is alive.
    roots = (os.path.realpath(cell.root), os.path.realpath(cell.fs_root))
    paths = opened.read_text().splitlines()
    result.watched = sum(p.startswith((cell.root, cell.fs_root)) for p in paths)
    result.opened = _outside(paths, roots)
  return result


def _fetch(port: int, name: str) -> bytes:
  """Returns a status page; sends the path without changes."""
  connection = http.client.HTTPConnection('127.0.0.1', port, timeout=5)
  connection.connect()
  path = name.encode('utf-8').replace(b'\n', b'').replace(b' ', b'')
  connection.send(b'GET /model/' + path + b' HTTP/1.1\r\nHost: localhost\r\n')
  connection.send(b'Connection: close\r\n\r\n')
  response = connection.sock.makefile('rb').read()
  connection.close()
  return response


def _outside(paths: Sequence[str], roots: Sequence[str]) -> list[str]:
  own = ('/proc/', '/sys/', '/dev/')
  return sorted(
    {
      p
      for p in map(os.path.realpath, paths)
      if not p.startswith((*roots, *own))
      # Modules may be imported at any time.
      and not p.endswith(('.py', '.pyc', '.so'))
      and not os.path.isdir(p)
    }
  )
