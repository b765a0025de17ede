"""Runs a Sax cell on this machine for the duration of a program.

The cell has an admin server and one model server. Each runs as its own process,
with the flags that a user would set, on a free port of the loopback interface.
All files of the cell are in one directory. A gateway may be added.

The model server may be a group of several processes, as on several hosts. They
compute one model together, split among their devices. On real hosts, the same
program runs with the same flags, see docs/multi_host.md. Here, the network of
the group is the loopback interface.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import json
import os
import time

from saxml_ext.client import sax
from saxml_ext.common import cell as cell_files
from saxml_ext.common import errors
from saxml_ext.common import net
from saxml_ext.protobuf import admin_pb2
from serve import children
from serve import endpoint
from serve import programs
from serve import progress as progress_lib

CELL = '/sax/local'

_PLATFORMS = 'JAX_PLATFORMS'
# The number of devices that JAX makes of a process's CPU; 1 by default.
_CPU_DEVICES = 'JAX_NUM_CPU_DEVICES'
_MESH = 'ICI_MESH_SHAPE'

# On a busy machine, importing Python, JAX and gRPC takes seconds.
_START_SECS = 180.0
# Loading a model compiles every shape that it uses.
_READY_SECS = 900.0
_POLL_SECS = 0.05
# The timeout of one call to the admin server, in seconds.
_ANSWER_SECS = 2.0
# A process that ends is detected at once. One that shares its cores with other
# work may be silent for seconds.
_GROUP_SILENCE_SECS = 30.0


def group_flags(hosts: int) -> list[dict[str, object]]:
  """Returns the flags of each process of a group, in the order of their ids.

  Args:
    hosts: The number of processes; a single process gets no flags.
  """
  if hosts == 1:
    return [{}]
  address = net.join_host_port('127.0.0.1', net.pick_free_port())
  return [
    {
      'coordinator_address': address,
      'num_processes': hosts,
      'process_id': process,
      'group_silence_secs': _GROUP_SILENCE_SECS,
    }
    for process in range(hosts)
  ]


def group_environment(
  hosts: int, environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
  """Returns the environment variables for the processes of a group.

  By default, the processes compute on the CPU, because two processes cannot
  share an accelerator. `environ` can override this.

  Args:
    hosts: The number of processes; a single process needs no variables.
    environ: The variables that are already set.
  """
  if hosts == 1 or _PLATFORMS in environ:
    return {}
  return {_PLATFORMS: 'cpu'}


def group_overrides(
  hosts: int, given: Mapping[str, str], environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
  """Returns overrides of the serving params that split the work of a group.

  Each device has the whole model and computes a part of the requests. With the
  bundled model on two CPU devices, a sample took 0.14 s of CPU time in this
  way. It took 0.21 s if the devices split the model, because partial sums cross
  the network in each layer.

  Args:
    hosts: The number of processes; the params of a single process stay
      unchanged.
    given: The user's overrides, which may set another mesh.
    environ: The environment variables of the processes.

  Raises:
    ValueError: JAX does not accept the variables.
  """
  if hosts == 1:
    return dict(given)
  text = environ.get(_CPU_DEVICES) or '1'
  if not text.isdecimal() or not int(text):
    raise ValueError(
      f'{_CPU_DEVICES}={text} is not a whole number of at least 1'
    )
  return {_MESH: json.dumps([1, hosts * int(text), 1])} | dict(given)


class CellError(programs.ServeError):
  """An error: the cell or its model did not get ready."""


@dataclasses.dataclass(frozen=True)
class Model:
  """A model to publish in the cell.

  Attributes:
    name: The last part of the model id.
    params: The name of the serving params.
    checkpoint: The PAX checkpoint directory.
    overrides: The values, as JSON, by attribute of the serving params.
  """

  name: str
  params: str
  checkpoint: str
  overrides: Mapping[str, str]

  @property
  def label(self) -> str:
    """The name of the model in messages."""
    return f'{CELL}/{self.name}'


@dataclasses.dataclass(eq=False)
class LocalCell:
  """A cell that can publish models.

  `group` stops the processes. The caller removes the temporary directory.

  Attributes:
    group: The group that starts and stops the processes.
    work_dir: The directory for the cell's files, which must exist.
    log_dir: The directory for the logs, one per process.
    jax_cache_dir: The directory where the model server caches compiled
      programs; None for no cache.
    progress: The display of the progress for the user.
    server: The program of the model server, and its flags.
    program_set: The set of programs that were compiled in advance; None if
      there is none. The model server compiles programs that do not match.
    hosts: The number of processes of the model server; more than one form a
      group.
    programs_cache: The directory where the model server caches sets of its
      compiled programs; None for no cache.
    model_server: The process of the model server, or the first one of a group;
      None until `start`.
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
  _http_port: int = dataclasses.field(
    default_factory=net.pick_free_port, init=False
  )

  @property
  def sax_root(self) -> str:
    """The root directory of the cell, for clients."""
    return os.path.join(self.work_dir, 'sax_root')

  @property
  def status_url(self) -> str:
    """The URL of the cell's status page."""
    return f'http://{net.join_host_port(endpoint.LOOPBACK, self._http_port)}'

  def start(self) -> None:
    """Starts both servers; returns when the model server has joined.

    Raises:
      children.ChildError: A process ended.
      CellError: A server was not ready in time.
    """
    self.start_processes()
    self.wait_for_servers()

  def start_processes(self) -> None:
    """Starts both servers, and does not wait for them."""
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
        root
        | {
          'host': endpoint.LOOPBACK,
          'port': net.pick_free_port(),
          'http_port': self._http_port,
        },
      ),
      self._log('admin_server'),
    )
    self.model_server = self._start_model_server(root)

  def wait_for_servers(self) -> None:
    """Returns when the model server has joined; raises errors like `start`."""
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
      'host': endpoint.LOOPBACK,
      'jax_cache_dir': self.jax_cache_dir,
      **self._programs(),
    }
    started = []
    for process, flags in enumerate(group_flags(self.hosts)):
      name, log = 'model server', 'model_server'
      if process:
        name, log = f'{name}, process {process}', f'{log}_{process}'
      command = self._command(
        self.server,
        shared | {'port': net.pick_free_port()} | flags,
        group_environment(self.hosts),
      )
      started.append(self.group.start(name, command, self._log(log)))
    return started[0]

  def _programs(self) -> dict[str, object]:
    flags: dict[str, object] = {'programs_cache': self.programs_cache}
    if self.program_set is not None:
      flags |= {'programs': self.program_set, 'programs_mismatch': 'compile'}
    return flags

  def publish(self, model: Model) -> str:
    """Publishes a model and waits until a replica of it can serve.

    Returns:
      The id of the model.

    Raises:
      children.ChildError: A process ended.
      CellError: Loading the model failed; the message has the server's reason.
      errors.SaxError: The admin server rejected the model.
    """
    model_id = f'{CELL}/{model.name}'
    self.progress.stage(f'publishing {model.label} ({model.params})')
    limit = sax.AdminOptions(_START_SECS)
    sax.Publish(
      model_id, model.params, model.checkpoint, 1, model.overrides, limit
    )
    with self.progress.bar('loading') as bar:
      self._wait(
        f'model {model.label}',
        lambda: self._can_serve(model_id, model.label),
        bar,
        _READY_SECS,
        lambda: self._loading_text(model_id),
      )
    return model_id

  def _wait(
    self,
    what: str,
    condition: Callable[[], bool],
    bar: progress_lib.Bar,
    limit: float,
    note: Callable[[], str] = lambda: '',
  ) -> None:
    """Waits up to `limit` seconds for a condition; watches the processes."""
    start = time.monotonic()
    while not condition():
      self.group.check()
      waited = time.monotonic() - start
      if waited > limit:
        raise CellError(
          f'{what} was not ready after {limit:g} s. See the logs in'
          f' {self.log_dir}'
        )
      if bar.is_due:
        text = note() or f'waiting for the {what}'
        bar.update(0, 0, f'{waited:.0f} s, {text}')
      time.sleep(_POLL_SECS)

  def _servers(self) -> int | None:
    """Returns the number of model servers; None without an admin server."""
    try:
      kinds = sax.Stats(CELL, sax.AdminOptions(_ANSWER_SECS))
    except errors.SaxError:
      return None  # It is not ready or busy; `_wait` limits the time.
    return sum(kind.num_replicas for kind in kinds)

  def _can_serve(self, model_id: str, label: str) -> bool:
    """Returns True if a replica is loaded; raises CellError if it failed."""
    options = sax.AdminOptions(_ANSWER_SECS)
    try:
      sax.WaitForReady(model_id, 1, options)
      return True
    except errors.DeadlineExceeded:
      pass  # The model is still loading, or loading has failed.
    for replica in self._replicas(model_id):
      if replica.status == 'FAILED':
        raise CellError(
          f'the model server could not load {label}:'
          f' {replica.reason or "no reason given"}. See'
          f' {self._log("model_server")}'
        )
    return False

  def _replicas(self, model_id: str) -> Sequence[sax.Replica]:
    try:
      return sax.ListDetail(model_id, sax.AdminOptions(_ANSWER_SECS)).replicas
    except errors.DeadlineExceeded:
      return ()  # The admin server is busy; `_wait` limits the time.

  def _loading_text(self, model_id: str) -> str:
    """Returns how far a model is loaded, as its server reports it."""
    for replica in self._replicas(model_id):
      if replica.status == 'LOADING' and replica.reason:
        return replica.reason
    return ''

  def _log(self, name: str) -> str:
    return os.path.join(self.log_dir, f'{name}.log')

  def _command(
    self,
    program: str,
    flags: Mapping[str, object],
    env: Mapping[str, str] | None = None,
  ) -> programs.Command:
    # The cell serves only this machine, so it advertises the loopback address.
    return programs.command(
      program, flags, {'SAX_DEBUG_IPADDR': '1', **(env or {})}
    )
