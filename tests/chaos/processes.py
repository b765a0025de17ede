"""Runs the programs of a cell as processes, to kill, stop and starve them."""

from collections.abc import Callable, Mapping, Sequence
import importlib.util
import os
import pathlib
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import grpc

from saxml_ext.common import cell as cell_lib
from saxml_ext.common import errors
from saxml_ext.common import grpc_util
from saxml_ext.common import net
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import admin_pb2_grpc

CELL = '/sax/test'
ADMIN_SERVER = 'saxml_ext.admin.admin_server'
# The timeout, in seconds, for anything on an overloaded machine.
PATIENCE = 120.0
_ADDRESS = re.compile(r' at (\S+:\d+)$')


class Process:
  """A program with its own log.

  Attributes:
    address: The address of its service.
    log: The path of its stderr.
  """

  def __init__(
    self,
    program: str,
    args: Sequence[str],
    log: pathlib.Path,
    env: Mapping[str, str] | None = None,
  ):
    """Starts `program`, a module, and waits until it prints its address."""
    self.log = log
    self._lines: queue.Queue[str] = queue.Queue()
    with log.open('ab') as stderr:
      self.popen = subprocess.Popen(
        # The module is not imported, because its flags would clash with others.
        [sys.executable, importlib.util.find_spec(program).origin, *args],
        env={
          **os.environ,
          'PYTHONPATH': os.pathsep.join(sys.path),
          net.LOOPBACK_VARIABLE: '1',
          **(env or {}),
        },
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
      )
    self._reader = threading.Thread(target=self._read, daemon=True)
    self._reader.start()
    try:
      line = self._lines.get(timeout=PATIENCE)
      self.address = _ADDRESS.search(line)[1]
    except (queue.Empty, TypeError) as e:
      self.end()
      raise RuntimeError(
        f'{program} did not start: {log.read_text()[-2000:]}'
      ) from e

  def _read(self) -> None:
    # The pipe is closed when the program ends, because long tests start many
    # programs.
    with self.popen.stdout as lines:
      for line in lines:
        self._lines.put(line.strip())
    self._lines.put('')

  def kill(self) -> None:
    """Sends SIGKILL and waits for the end of the process."""
    self.popen.kill()
    self.popen.wait()

  def stop(self) -> None:
    """Sends SIGSTOP."""
    self.popen.send_signal(signal.SIGSTOP)

  def go_on(self) -> None:
    """Sends SIGCONT."""
    self.popen.send_signal(signal.SIGCONT)

  def end(self) -> None:
    """Ends the process in any state."""
    self.kill()
    self._reader.join()


class Cell:
  """The files and programs of one cell; the end of the context ends them."""

  def __init__(self, directory: str, fs_root: str | None = None):
    """Sets the directory, which must be empty; `fs_root` may be elsewhere."""
    self.path = pathlib.Path(directory)
    self.root = f'{directory}/root'
    self.fs_root = fs_root or f'{directory}/fs'
    self._processes: list[Process] = []
    cell_lib.write_config(
      self.root,
      CELL,
      admin_pb2.Config(fs_root=self.fs_root, admin_acl='acl/all'),
    )

  def __enter__(self) -> 'Cell':
    return self

  def __exit__(self, *unused) -> None:
    for process in self._processes:
      process.end()

  def admin(
    self,
    env: Mapping[str, str] | None = None,
    program: str = ADMIN_SERVER,
  ) -> Process:
    """Starts an admin server."""
    return self.start(program, ['--http_port=-1'], env)

  def start(
    self,
    program: str,
    args: Sequence[str],
    env: Mapping[str, str] | None = None,
  ) -> Process:
    """Starts a program of the cell on its own port."""
    process = Process(
      program,
      [f'--sax_root={self.root}', f'--sax_cell={CELL}', '--port=0', *args],
      self.path / f'{len(self._processes)}.log',
      env,
    )
    self._processes.append(process)
    return process

  def location(self) -> str:
    """Returns the leader's address as clients find it; '' if there is none."""
    try:
      return cell_lib.read_location(self.root, CELL).location
    except errors.SaxError:
      return ''

  def call(self, method: str, request: Any, timeout: float = PATIENCE) -> Any:
    """Calls the leader once; raises grpc.RpcError."""
    return call(self.location(), method, request, timeout)

  def wait_for_leader(self, but: Sequence[str] = ()) -> str:
    """Waits until an admin server answers List; returns its address.

    Args:
      but: The addresses that do not count.
    """

    def answers() -> str:
      address = self.location()
      if address and address not in but:
        try:
          call(address, 'List', admin_pb2.ListRequest(), 1.0)
          return address
        except grpc.RpcError:
          pass  # The server is not ready yet.
      return ''

    return wait(answers)

  def models(self) -> dict[str, admin_pb2.Model]:
    """Returns the published models by id."""
    response = self.call('List', admin_pb2.ListRequest())
    return {p.model.model_id: p.model for p in response.published_models}


def call(
  address: str, method: str, request: Any, timeout: float = PATIENCE
) -> Any:
  """Calls an admin server over a new connection."""
  with grpc_util.channel(address) as channel:
    stub = admin_pb2_grpc.AdminStub(channel)
    return getattr(stub, method)(request, timeout=timeout)


def wait(condition: Callable[[], Any], pause: float = 0.02) -> Any:
  """Waits until a condition returns a true value; returns that value."""
  until = time.monotonic() + PATIENCE
  while time.monotonic() < until:
    if result := condition():
      return result
    time.sleep(pause)
  raise AssertionError(f'not within {PATIENCE:g} s: {condition}')


def percentile(values: Sequence[float], percent: float) -> float:
  """Returns a percentile by the nearest rank."""
  ordered = sorted(values)
  return ordered[max(0, -int(-len(ordered) * percent // 100) - 1)]
