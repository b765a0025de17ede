"""Serves models with processes that are watched and restarted."""

import collections
from collections.abc import Callable, Mapping, Sequence
import dataclasses
import fcntl
import json
import os
import shlex
import shutil
import socket
import sys
import time
from typing import TextIO, TYPE_CHECKING

from saxml_ext.common.telemetry import sockets
from serve import children
from serve import endpoint as endpoint_lib
from serve import local_cell
from serve import programs
from serve import progress as progress_lib

if TYPE_CHECKING:
  from serve import models

_OWNER = 'owner.json'
# A process that dies more often within this many seconds is not restarted.
_MOST_RESTARTS, _RESTART_SECS = 3, 120.0
_POLL_SECS = 0.05
_GATEWAY_SECS = 120.0


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

  def write_url(self, url: str) -> None:
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
    gateway_flags: The values of the user's flags of the gateway.
    progress: The display of the progress for the user.
    deaths: The recent times at which a process died, by its name.
  """

  group: children.Children
  directory: CellDirectory
  cache: str
  endpoint: endpoint_lib.Endpoint
  gateway_flags: Mapping[str, object]
  progress: progress_lib.Progress = dataclasses.field(
    default_factory=lambda: progress_lib.Progress(sys.stderr)
  )
  deaths: dict[str, collections.deque[float]] = dataclasses.field(
    default_factory=dict
  )

  def run(
    self, find: Callable[[], Sequence['models.Model']], program_set: str
  ) -> None:
    """Serves models until a process dies too often or a signal arrives.

    Args:
      find: The function that finds and checks the models. The servers start in
        the meantime.
      program_set: The programs that the build compiled for one of the models;
        '' if there are none.

    Raises:
      programs.ServeError: A process died, or a model could not be converted or
        loaded.
      sax_errors.SaxError: The cell rejected a model.
    """
    cell = local_cell.LocalCell(
      self.group,
      self.directory.path,
      self.directory.logs,
      os.path.join(self.cache, 'jax'),
      self.progress,
      program_set=program_set or None,
      programs_cache=os.path.join(self.cache, 'programs'),
    )
    self.directory.write_url(self.endpoint.url)
    self.progress.text(f'logs are in {self.directory.logs}')
    cell.start_processes()
    chosen = find()
    for model in chosen:
      for note in model.notes:
        self.progress.text(f'{model.public_name}: {note}')
    converted = [model.converted(self._convert) for model in chosen]
    # New connections wait here while a gateway is replaced.
    with sockets.listen(self.endpoint.host, self.endpoint.port) as listener:
      self._start_gateway(cell, converted, listener)
      cell.wait_for_servers()
      for model in converted:
        cell.publish(model)
      self._wait_for_gateway()
      self._print_ready(converted, cell)
      while True:
        for child in self.group.ended():
          self._restart(child)
        time.sleep(_POLL_SECS)

  def _convert(
    self, name: str, program: str, flags: Mapping[str, object]
  ) -> None:
    self.progress.stage(f'converting {flags["base"]}')
    self.group.run(name, programs.command(program, flags), '')

  def _start_gateway(
    self,
    cell: local_cell.LocalCell,
    chosen: Sequence['models.Model'],
    listener: socket.socket,
  ) -> None:
    names = [f'{m.public_name}={m.name}' for m in chosen]
    configs = [
      f'{m.name}={m.generation_config}' for m in chosen if m.generation_config
    ]
    templates = [f'{m.name}={m.chat_template}' for m in chosen]
    command = programs.command(
      programs.GATEWAY,
      {
        **self.gateway_flags,
        'sax_root': cell.sax_root,
        'sax_cell': local_cell.CELL,
        'host': self.endpoint.host,
        'port': self.endpoint.port,
        'default_model': chosen[0].name if len(chosen) == 1 else None,
        'served_model_name': ','.join(names),
        'chat_template': ','.join(templates),
        'generation_config': ','.join(configs) or None,
        'status_page': cell.status_url,
      },
      {'SAX_DEBUG_IPADDR': '1', 'SAX_HTTP_LISTEN_FD': str(listener.fileno())},
    )
    self.group.start(
      'gateway',
      command,
      os.path.join(self.directory.logs, 'gateway.log'),
      [listener.fileno()],
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

  def _print_ready(
    self, chosen: Sequence['models.Model'], cell: local_cell.LocalCell
  ) -> None:
    """Prints the information that a user needs to send requests."""
    url = self.endpoint.url
    messages = [{'role': 'user', 'content': 'Hello'}]
    body = json.dumps(
      {'model': chosen[0].public_name, 'messages': messages, 'stream': True}
    )
    key = ''
    if self.gateway_flags.get('api_keys_file'):
      key = " -H 'Authorization: Bearer <key>'"
    saxutil = f'{_saxutil()} --sax_root={shlex.quote(cell.sax_root)}'
    self.progress.text(
      f'\ncurl -N {url}/v1/chat/completions{key}'
      " -H 'Content-Type: application/json'"
      f" -d '{body}'\n"
      f"{saxutil} lm.generate {local_cell.CELL}/{chosen[0].name} 'Hello'\n"
      f'status of the cell: {cell.status_url}\n'
    )
    served = ', '.join(model.public_name for model in chosen)
    print(f'Ready: {served} at {url}', flush=True)


def _saxutil() -> str:
  """Returns the command that starts saxutil in this installation."""
  if os.environ.get('BUILD_WORKSPACE_DIRECTORY'):
    return './bazelw run //saxml_ext/client:saxutil --'
  return shlex.join(programs.command(programs.SAXUTIL, {}).argv)
