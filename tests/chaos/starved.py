"""Tests an admin server whose storage is full, read-only or unreachable."""

from collections.abc import Callable, Iterator
import contextlib
import dataclasses
import logging
import os
import pathlib
import resource
import secrets
import subprocess
import time
from unittest import mock

import boto3
import grpc
from moto import server as moto_server

from saxml_ext.common import net
from saxml_ext.protobuf import admin_pb2
from tests.chaos import processes

_MODEL_SERVER = 'tests.chaos.fake_server'
_MODEL = processes.CELL + '/m'
_BUCKET = 'cell'
_HOST = '127.0.0.1'
# The failure takes longer than a lease.
_SECS = 4.0
# Clients retry UNAVAILABLE. A delay of this many seconds is acceptable.
_TRY_SECS = 1.5
# The limit of a file in bytes. It is enough only for a claim.
_FILE_LIMIT = 300
_CLEAR = (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNAVAILABLE)


@dataclasses.dataclass
class Result:
  """The result of one kind of failure.

  Attributes:
    refused: The number of changes that were rejected during the failure.
    accepted: The number of changes that were acknowledged during the failure.
    unclear: The number of changes with another outcome.
    slowest_secs: The longest time until a change was rejected.
    looks: The number of lookups of the served model's addresses during the
      failure.
    answered: The number of lookups that returned its server within a client's
      retries.
    recovery_secs: The seconds from the end of the failure until a change
      succeeds.
    intact: True if, at the end, every acknowledged change is there and the
      processes are alive.
  """

  refused: int = 0
  accepted: int = 0
  unclear: list[str] = dataclasses.field(default_factory=list)
  slowest_secs: float = 0.0
  looks: int = 0
  answered: int = 0
  recovery_secs: float = 0.0
  intact: bool = False


@dataclasses.dataclass(frozen=True)
class Trouble:
  """A kind of failure.

  Attributes:
    fs_root: The fs_root of the cell.
    env: The environment of the admin server.
    begin: The function that makes the storage fail, given the process id of the
      admin server.
    end: The function that repairs it.
  """

  fs_root: str
  env: dict[str, str]
  begin: Callable[[int], None]
  end: Callable[[int], None]


@contextlib.contextmanager
def limited(directory: str) -> Iterator[Trouble]:
  """Makes a file system with a small limit for the size of files (EFBIG)."""

  def limit(pid: int, size: int) -> None:
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

  yield Trouble(
    f'{directory}/fs',
    {},
    lambda pid: limit(pid, _FILE_LIMIT),
    lambda pid: limit(pid, resource.RLIM_INFINITY),
  )


def _run(*command: str) -> None:
  subprocess.run(command, check=True, capture_output=True)


@contextlib.contextmanager
def full(directory: str) -> Iterator[Trouble]:
  """Makes a file system without space (ENOSPC); see `MOUNTING`."""
  path = pathlib.Path(directory) / 'tmpfs'
  path.mkdir()
  _run('mount', '-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', os.fspath(path))
  filler = path / 'filler'

  def fill(unused_pid: int) -> None:
    with filler.open('wb', buffering=0) as f:
      try:
        while True:
          f.write(bytes(4096))
      except OSError:
        pass  # The file system is full, as intended.

  try:
    yield Trouble(f'{path}/fs', {}, fill, lambda _: filler.unlink())
  finally:
    _run('umount', '-l', os.fspath(path))


@contextlib.contextmanager
def read_only(directory: str) -> Iterator[Trouble]:
  """Makes a read-only file system (EROFS); see `MOUNTING`."""
  path = pathlib.Path(directory) / 'mounted'
  path.mkdir()
  # The test mounts its own file system, because a namespace cannot change those
  # of the machine.
  _run('mount', '-t', 'tmpfs', 'tmpfs', os.fspath(path))
  mounted = []

  def begin(unused_pid: int) -> None:
    _run('mount', '--bind', os.fspath(path), os.fspath(path))
    mounted.append(os.fspath(path))
    # Remounting fails while a file is being written there.
    processes.wait(lambda: not _remount_fails(path))

  def end(unused_pid: int) -> None:
    if mounted:
      _run('umount', '-l', mounted.pop())

  try:
    yield Trouble(f'{path}/fs', {}, begin, end)
  finally:
    end(0)
    _run('umount', '-l', os.fspath(path))


def _remount_fails(path: pathlib.Path) -> bool:
  try:
    _run('mount', '-o', 'remount,bind,ro', os.fspath(path))
  except subprocess.CalledProcessError as e:
    if b'busy' not in e.stderr:
      raise
    return True
  return False


@contextlib.contextmanager
def away(unused_directory: str) -> Iterator[Trouble]:
  """Makes a bucket whose server does not answer."""
  logging.getLogger('werkzeug').setLevel(logging.ERROR)
  port = net.pick_free_port()
  servers = []

  def start(unused_pid: int) -> None:
    servers.append(moto_server.ThreadedMotoServer(_HOST, port, verbose=False))
    servers[-1].start()

  env = {
    'AWS_ENDPOINT_URL': f'http://{_HOST}:{port}',
    'AWS_REGION': 'us-east-1',
    'AWS_ACCESS_KEY_ID': 'emulator',
    'AWS_SECRET_ACCESS_KEY': 'emulator',
  }
  start(0)
  with mock.patch.dict(os.environ, env):
    boto3.client('s3').create_bucket(Bucket=_BUCKET)
  try:
    yield Trouble(
      f's3://{_BUCKET}/{secrets.token_hex(4)}',
      env,
      lambda _: servers[-1].stop(),
      start,
    )
  finally:
    servers[-1].stop()


# These failures mount file systems, which requires separate namespaces, see
# `namespaces.enter`.
MOUNTING = (full, read_only)
NAMESPACES = ('--mount',)
PROBE = 'mount -t tmpfs none /mnt'


def _publish(address: str, model_id: str) -> None:
  processes.call(
    address,
    'Publish',
    admin_pb2.PublishRequest(
      model=admin_pb2.Model(
        model_id=model_id,
        model_path='p.A',
        checkpoint_path='/' + 'c' * 400,
        requested_num_replicas=1,
      )
    ),
    30.0,
  )


def run(
  directory: str,
  trouble: Trouble,
  secs: float = _SECS,
  try_secs: float = _TRY_SECS,
) -> Result:
  """Makes the storage of a cell fail for some time.

  Args:
    directory: An empty directory.
    trouble: The kind of failure.
    secs: The duration of the failure.
    try_secs: The time limit for a client to get the addresses of a model.
  """
  result = Result()
  with processes.Cell(directory, trouble.fs_root) as cell:
    admin = cell.admin(trouble.env)
    server = cell.start(_MODEL_SERVER, [])
    address = cell.wait_for_leader()
    _publish(address, _MODEL)
    processes.wait(lambda: _serves(address, server.address))
    trouble.begin(admin.popen.pid)
    try:
      until = time.monotonic() + secs
      number = 0
      while time.monotonic() < until:
        number += 1
        _try(address, f'{processes.CELL}/x{number}', result)
        result.looks += 1
        result.answered += _serves_soon(address, server.address, try_secs)
        time.sleep(0.1)
    finally:
      trouble.end(admin.popen.pid)
    ended = time.monotonic()
    processes.wait(lambda: _succeeds(address))
    result.recovery_secs = time.monotonic() - ended
    processes.wait(lambda: _serves(address, server.address))
    result.intact = (
      admin.popen.poll() is None
      and set(cell.models()) >= {_MODEL, processes.CELL + '/after'}
      and not any('/x' in k for k in cell.models())
    )
  return result


def _try(address: str, model_id: str, result: Result) -> None:
  started = time.monotonic()
  try:
    _publish(address, model_id)
    result.accepted += 1
  except grpc.RpcError as e:
    if e.code() in _CLEAR:
      result.refused += 1
    else:
      result.unclear.append(f'{e.code()}: {e.details()}')
  result.slowest_secs = max(result.slowest_secs, time.monotonic() - started)


def _serves(
  address: str, server: str, timeout: float = processes.PATIENCE
) -> bool:
  """Returns True if a new client gets the address of the model's server."""
  try:
    response = processes.call(
      address, 'WatchLoc', admin_pb2.WatchLocRequest(model_id=_MODEL), timeout
    )
  except grpc.RpcError:
    return False
  known = set(response.result.values)
  for change in response.result.changelog:
    known.add(change.addition)
    known.discard(change.deletion)
  return server in known


def _serves_soon(address: str, server: str, secs: float) -> bool:
  until = time.monotonic() + secs
  timeout = secs * 2 / 3
  while not (is_served := _serves(address, server, timeout)):
    if time.monotonic() >= until:
      break
    time.sleep(0.1)
  return is_served


def _succeeds(address: str) -> bool:
  try:
    _publish(address, processes.CELL + '/after')
    return True
  except grpc.RpcError as e:
    return e.code() is grpc.StatusCode.ALREADY_EXISTS
