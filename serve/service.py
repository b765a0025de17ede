"""Serves models with processes that are watched and restarted."""

import collections
from collections.abc import Sequence
import dataclasses
import fcntl
import http.client
import json
import os
import shlex
import shutil
import sys
import time
from typing import TextIO

from saxml_ext.common import net
from serve import children
from serve import local_cell
from serve import models
from serve import programs
from serve import progress as progress_lib

DEFAULT_PORT = 8000

_OWNER = 'owner.json'
# A process that dies more often within this many seconds is not restarted.
_MOST_RESTARTS, _RESTART_SECS = 3, 120.0
_POLL_SECS = 0.05
_GATEWAY_SECS = 120.0


@dataclasses.dataclass(frozen=True)
class Endpoint:
  """The address of the gateway, and its access.

  Attributes:
    host: The address of the interface.
    port: The TCP port.
    api_key_file: The file of the API keys; None admits everybody.
    drain_secs: The time to finish requests in flight at the end, in seconds.
  """

  host: str
  port: int
  api_key_file: str | None = None
  drain_secs: float = 60.0

  @property
  def address(self) -> str:
    """The "host:port" for clients on this machine."""
    host = self.host
    if host in ('', '0.0.0.0', '::'):
      host = local_cell.LOOPBACK
    return net.join_host_port(host, self.port)

  @property
  def url(self) -> str:
    """The URL for clients on this machine, without a path."""
    return f'http://{self.address}'

  def answers(self) -> bool:
    """Returns True if a gateway listens at the address."""
    connection = http.client.HTTPConnection(self.address, timeout=10)
    try:
      connection.request('GET', '/health/live')
      return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
      return False
    finally:
      connection.close()


class CellDirectory:
  """The directory of a cell, which one `serve` at a time may use."""

  def __init__(self, path: str):
    """Locks the directory.

    Args:
      path: The directory. It is created if necessary, and files that an earlier
        cell has left there are removed.

    Raises:
      programs.ServeError: Another process uses the directory.
    """
    self.path = path
    os.makedirs(path, exist_ok=True)
    self._owner: TextIO = open(
      os.path.join(path, _OWNER), 'a+', encoding='utf-8'
    )
    try:
      fcntl.flock(self._owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
      raise programs.ServeError(
        f'The directory {path} is used by {self._other()}. Stop that process,'
        ' or set another directory with --sax_root.'
      ) from None
    for name in ('sax_root', 'fs_root'):
      shutil.rmtree(os.path.join(path, name), ignore_errors=True)

  @property
  def logs(self) -> str:
    """The directory of the logs."""
    return os.path.join(self.path, 'logs')

  def tell(self, url: str) -> None:
    """Writes the URL to the directory, for other processes to read."""
    self._owner.truncate(0)
    json.dump({'pid': os.getpid(), 'url': url}, self._owner)
    self._owner.flush()

  def _other(self) -> str:
    self._owner.seek(0)
    try:
      owner = json.loads(self._owner.read())
      return f'process {owner["pid"]}, which serves at {owner["url"]}'
    except (ValueError, KeyError):
      return 'another process'


@dataclasses.dataclass(eq=False)
class Service:
  """The processes that serve, and the messages for the user.

  Attributes:
    group: The group that starts and stops the processes.
    directory: The directory of the cell.
    cache: The directory for compiled programs.
    endpoint: The address of the gateway.
    progress: The display of the progress for the user.
    deaths: The recent times at which a process died, by its name.
  """

  group: children.Children
  directory: CellDirectory
  cache: str
  endpoint: Endpoint
  progress: progress_lib.Progress = dataclasses.field(
    default_factory=lambda: progress_lib.Progress(sys.stderr)
  )
  deaths: dict[str, collections.deque[float]] = dataclasses.field(
    default_factory=dict
  )

  def run(self, found: Sequence[models.Model]) -> None:
    """Serves models until a process dies too often or a signal arrives.

    Raises:
      programs.ServeError: A process died, or a model could not be loaded.
      sax_errors.SaxError: The cell rejected a model.
    """
    program_set = next((m.program_set for m in found if m.program_set), None)
    cell = local_cell.LocalCell(
      self.group,
      self.directory.path,
      self.directory.logs,
      os.path.join(self.cache, 'jax'),
      self.progress,
      program_set=program_set,
      programs_cache=os.path.join(self.cache, 'programs'),
    )
    self.directory.tell(self.endpoint.url)
    self.progress.text(f'logs are in {self.directory.logs}')
    self._start_gateway(cell.sax_root, found)
    cell.start()
    for model in found:
      cell.publish(model)
    self._wait_for_gateway()
    self._tell(found, cell.sax_root)
    while True:
      for child in self.group.ended():
        self._restart(child)
      time.sleep(_POLL_SECS)

  def _start_gateway(
    self, sax_root: str, found: Sequence[models.Model]
  ) -> None:
    names = [f'{m.public_name}={m.name}' for m in found]
    configs = [
      f'{m.name}={m.generation_config}' for m in found if m.generation_config
    ]
    command = programs.command(
      programs.GATEWAY,
      {
        'sax_root': sax_root,
        'sax_cell': local_cell.CELL,
        'host': self.endpoint.host,
        'port': self.endpoint.port,
        'default_model': found[0].name if len(found) == 1 else None,
        'served_model_name': ','.join(names),
        'chat_template': ','.join(f'{m.name}={m.chat_template}' for m in found),
        'generation_config': ','.join(configs) or None,
        'api_keys_file': self.endpoint.api_key_file,
        'drain_secs': self.endpoint.drain_secs,
      },
      {'SAX_DEBUG_IPADDR': '1'},
    )
    self.group.start(
      'gateway', command, os.path.join(self.directory.logs, 'gateway.log')
    )

  def _wait_for_gateway(self) -> None:
    deadline = time.monotonic() + _GATEWAY_SECS
    while not self.endpoint.answers():
      self.group.check()
      if time.monotonic() > deadline:
        raise programs.ServeError(
          f'The gateway did not answer within {_GATEWAY_SECS:g} s. See its'
          f' log in {self.directory.logs}.'
        )
      time.sleep(_POLL_SECS)

  def _restart(self, child: children.Child) -> None:
    """Restarts a process; raises ServeError if it died too often."""
    deaths = self.deaths.setdefault(
      child.name, collections.deque(maxlen=_MOST_RESTARTS + 1)
    )
    deaths.append(time.monotonic())
    is_often = len(deaths) > _MOST_RESTARTS
    if is_often and deaths[-1] - deaths[0] <= _RESTART_SECS:
      raise programs.ServeError(
        f'{child.error()}\nIt ended more than {_MOST_RESTARTS} times within'
        f' {_RESTART_SECS:g} s, so it is not started again.'
      )
    self.progress.stage(
      f'the {child.name} (process {child.process.pid}) ended with'
      f' {child.ending}. Starting it again'
    )
    self.group.restart(child)

  def _tell(self, found: Sequence[models.Model], sax_root: str) -> None:
    """Prints the information that a user needs to send requests."""
    url = self.endpoint.url
    name = found[0].public_name
    messages = [{'role': 'user', 'content': 'Hello'}]
    body = json.dumps({'model': name, 'messages': messages, 'stream': True})
    key = (
      " -H 'Authorization: Bearer <key>'" if self.endpoint.api_key_file else ''
    )
    saxutil = f'{_saxutil()} --sax_root={shlex.quote(sax_root)}'
    for model in found:
      for note in model.notes:
        self.progress.text(f'note: {note}')
    self.progress.text(
      f'\ncurl -N {url}/v1/chat/completions{key}'
      " -H 'Content-Type: application/json'"
      f" -d '{body}'\n"
      f"{saxutil} lm.generate {local_cell.CELL}/{found[0].name} 'Hello'\n"
    )
    served = ', '.join(model.public_name for model in found)
    print(f'Ready: {served} at {url}', flush=True)


def _saxutil() -> str:
  """Returns the command that starts saxutil in this installation."""
  if os.environ.get('BUILD_WORKSPACE_DIRECTORY'):
    return './bazelw run //saxml_ext/client:saxutil --'
  return shlex.join(programs.command(programs.SAXUTIL, {}).argv)
