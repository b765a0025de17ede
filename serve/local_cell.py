"""A Sax cell of our own on this machine, for as long as a program runs.

An admin server and one model server, each a process as a user would start it,
on free ports of the loopback interface, with all files of the cell in one
directory. A gateway may be added.

The model server may be a group of several processes, as on several hosts, that
compute one model together, split among their devices. On real hosts the same
program is started with the same flags, see docs/multi_host.md; here its network
is the loopback interface.
"""

from collections.abc import Callable, Mapping
import dataclasses
import json
import os
import re
import time

from saxml_ext.client import sax
from saxml_ext.common import cell as cell_files
from saxml_ext.common import errors
from saxml_ext.common import net
from saxml_ext.protobuf import admin_pb2
from serve import children
from serve import programs
from serve import progress as progress_lib

CELL = '/sax/local'
LOOPBACK = '127.0.0.1'

_PLATFORMS = 'JAX_PLATFORMS'
# The number of devices that JAX makes of a process's CPU; 1 by default.
_CPU_DEVICES = 'JAX_NUM_CPU_DEVICES'
_MESH = 'ICI_MESH_SHAPE'

# Python, JAX and gRPC take seconds to import on a busy machine.
_START_SECS = 180.0
# Loading compiles every shape that the model uses.
_READY_SECS = 900.0
_POLL_SECS = 0.05
# How long one question to the admin server may take.
_ANSWER_SECS = 2.0

# "I1120 23:49:15.321862 139893206382272 loader.py:55] " of a log line.
_LOG_PREFIX = re.compile(r'^[IWEF]\d{4} \S+ +\d+ [^\]]+\] ')


def group_flags(hosts: int) -> list[dict[str, object]]:
  """Returns the flags of each process of a group, in the order of their ids.

  Args:
    hosts: The number of processes; one alone gets no flags.
  """
  if hosts == 1:
    return [{}]
  address = net.join_host_port('127.0.0.1', net.pick_free_port())
  return [
    {
      'coordinator_address': address,
      'num_processes': hosts,
      'process_id': process,
    }
    for process in range(hosts)
  ]


def group_environment(
  hosts: int, environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
  """Returns variables for the processes of a group.

  They compute on the CPU, unless `environ` says otherwise: an accelerator of
  this machine cannot be had by two processes.

  Args:
    hosts: The number of processes; one alone needs none.
    environ: The variables that are set.
  """
  if hosts == 1 or _PLATFORMS in environ:
    return {}
  return {_PLATFORMS: 'cpu'}


def group_overrides(
  hosts: int, given: Mapping[str, str], environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
  """Returns overrides of the serving params that split the work among a group.

  Each device has the whole model, and its part of the requests: with the
  bundled model on two CPU devices a sample took 0.14 s of CPU time that way.
  It took 0.21 s with the model split, whose partial sums cross the network in
  each layer.

  Args:
    hosts: The number of processes; one alone leaves the params as they are.
    given: The user's overrides, which may have a mesh of their own.
    environ: The variables that the processes will have.

  Raises:
    ValueError: The variables are not what JAX takes.
  """
  if hosts == 1:
    return dict(given)
  text = environ.get(_CPU_DEVICES) or '1'
  if not text.isdecimal() or not int(text):
    raise ValueError(
      f'{_CPU_DEVICES}={text}: must be a whole number, at least 1'
    )
  return {_MESH: json.dumps([1, hosts * int(text), 1])} | dict(given)


class CellError(programs.ServeError):
  """The cell or its model did not get ready."""


@dataclasses.dataclass(frozen=True)
class Model:
  """A model that is published in the cell.

  Attributes:
    name: last part of the model id.
    params: name of the serving params.
    checkpoint: PAX checkpoint directory.
    overrides: attribute of the serving params -> value as JSON.
  """

  name: str
  params: str
  checkpoint: str
  overrides: Mapping[str, str]


@dataclasses.dataclass(eq=False)
class LocalCell:
  """Starts a cell and publishes a model in it.

  The processes belong to `group`; the temporary directory to the caller.

  Attributes:
    group: Gets the processes.
    work_dir: An existing directory for the cell's files.
    log_dir: Gets a log per process.
    jax_cache_dir: The directory where the model server keeps compiled programs;
      None keeps none.
    progress: Shows the user what happens.
    server: The program of the model server, with that one's flags.
    program_set: The programs that the model server need not compile; it
      compiles all the same where they do not match. None: there are none.
    hosts: The processes of the model server; more than one are a group.
    programs_cache: The directory where the model server keeps sets of the
      programs that it compiles; None keeps none.
    model_server: Its process, of a group the first; None until `start`.
  """

  group: children.Children
  work_dir: str
  log_dir: str
  jax_cache_dir: str | None
  progress: progress_lib.Progress
  server: str = programs.MODEL_SERVER
  program_set: str | None = None
  hosts: int = 1
  programs_cache: str | None = None
  model_server: children.Child | None = dataclasses.field(
    default=None, init=False
  )

  @property
  def sax_root(self) -> str:
    """The cell's root directory, for clients."""
    return os.path.join(self.work_dir, 'sax_root')

  def start(self) -> None:
    """Starts both servers; returns when the model server has joined.

    Raises:
      children.ChildError: a process ended.
      CellError: one was not ready in time.
    """
    fs_root = os.path.join(self.work_dir, 'fs_root')
    os.makedirs(fs_root, exist_ok=True)
    os.makedirs(self.sax_root, exist_ok=True)
    sax.SetRoot(self.sax_root)
    of_hosts = f' of {self.hosts} hosts' if self.hosts > 1 else ''
    self.progress.stage(
      f'starting a cell: admin server and model server{of_hosts}'
    )
    root = {'sax_root': self.sax_root, 'sax_cell': CELL}
    config = admin_pb2.Config(fs_root=fs_root, admin_acl='acl/all')
    cell_files.write_config(self.sax_root, CELL, config)
    self.group.start(
      'admin server',
      self._command(
        programs.ADMIN_SERVER,
        root | {'host': LOOPBACK, 'port': net.pick_free_port()},
      ),
      self._log('admin_server'),
    )
    self.model_server = self._start_model_server(root)
    with self.progress.bar('servers') as bar:
      self._wait(
        'admin server', lambda: self._servers() is not None, bar, _START_SECS
      )
      self._wait(
        'model server', lambda: bool(self._servers()), bar, _START_SECS
      )

  def _start_model_server(self, root: Mapping[str, object]) -> children.Child:
    """Starts the processes of the model server; returns the first."""
    shared = {
      **root,
      'host': LOOPBACK,
      'jax_cache_dir': self.jax_cache_dir,
      **self._programs(),
    }
    started = []
    for process, told in enumerate(group_flags(self.hosts)):
      name, log = 'model server', 'model_server'
      if process:
        name, log = f'{name}, process {process}', f'{log}_{process}'
      command = self._command(
        self.server,
        shared | {'port': net.pick_free_port()} | told,
        group_environment(self.hosts),
      )
      started.append(self.group.start(name, command, self._log(log)))
    return started[0]

  def _programs(self) -> dict[str, object]:
    found: dict[str, object] = {'programs_cache': self.programs_cache}
    if self.program_set is not None:
      found |= {'programs': self.program_set, 'programs_mismatch': 'compile'}
    return found

  def publish(self, model: Model) -> str:
    """Publishes a model and waits until a replica of it can serve.

    Returns:
      The id of the model.

    Raises:
      children.ChildError: a process ended.
      CellError: the model could not be loaded, with the server's reason.
      errors.SaxError: the admin server refused it.
    """
    model_id = f'{CELL}/{model.name}'
    self.progress.stage(f'publishing {model_id} ({model.params})')
    limit = sax.AdminOptions(_START_SECS)
    sax.Publish(
      model_id, model.params, model.checkpoint, 1, model.overrides, limit
    )
    with self.progress.bar('loading') as bar:
      self._wait(
        f'model {model_id}', lambda: self._can_serve(model_id), bar, _READY_SECS
      )
    return model_id

  def _wait(
    self,
    what: str,
    condition: Callable[[], bool],
    bar: progress_lib.Bar,
    limit: float,
  ) -> None:
    """Waits at most `limit` seconds while watching the processes."""
    start = time.monotonic()
    while not condition():
      self.group.check()
      waited = time.monotonic() - start
      if waited > limit:
        raise CellError(
          f'{what} was not ready after {limit:g} s; see the logs in'
          f' {self.log_dir}'
        )
      bar.update(0, 0, f'{waited:.0f} s {self._server_says()}')
      time.sleep(_POLL_SECS)

  def _servers(self) -> int | None:
    """Returns the number of model servers; None if the admin is not there."""
    try:
      kinds = sax.Stats(CELL, sax.AdminOptions(_ANSWER_SECS))
    except errors.SaxError:
      return None  # Not yet, or busy; `_wait` limits how long.
    return sum(kind.num_replicas for kind in kinds)

  def _can_serve(self, model_id: str) -> bool:
    """Returns whether a replica is loaded; raises CellError if that failed."""
    options = sax.AdminOptions(_ANSWER_SECS)
    try:
      sax.WaitForReady(model_id, 1, options)
      return True
    except errors.DeadlineExceeded:
      pass  # It is still loading, or its load has failed.
    try:
      replicas = sax.ListDetail(model_id, options).replicas
    except errors.DeadlineExceeded:
      return False  # The admin server is busy; `_wait` limits how long.
    for replica in replicas:
      if replica.status == 'FAILED':
        raise CellError(
          f'the model server could not load {model_id}:'
          f' {replica.reason or "it gave no reason"}; see'
          f' {self._log("model_server")}'
        )
    return False

  def _server_says(self) -> str:
    lines = children.last_lines(self._log('model_server'), 1)
    return _LOG_PREFIX.sub('', ''.join(lines))

  def _log(self, name: str) -> str:
    return os.path.join(self.log_dir, f'{name}.log')

  def _command(
    self,
    program: str,
    flags: Mapping[str, object],
    env: Mapping[str, str] | None = None,
  ) -> programs.Command:
    # The cell is for this machine alone: advertise the loopback address.
    return programs.command(
      program, flags, {'SAX_DEBUG_IPADDR': '1', **(env or {})}
    )
