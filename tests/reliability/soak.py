"""Runs mixed traffic for a long time while servers change and crash.

Models are published, reloaded and unpublished. Model servers are killed and
terminated, and the leading admin server is killed. Several clients of all kinds
must notice nothing, and the memory of no process may grow.
"""

from collections.abc import Callable, Iterator
import contextlib
import dataclasses
import itertools
import os
import random
import signal
import threading
import time

from saxml_ext.client import sax
from saxml_ext.server.testing import small_model
from tests.chaos import processes
from tests.reliability import served as served_lib
from tests.reliability.clients import traffic as traffic_lib
from tests.reliability.results import figures
from tests.reliability.results import meters

_CLIENT = 'tests.reliability.clients.soak_client'
_REAL_SERVER = 'saxml_ext.server.testing.small_server'
_MAIN = processes.CELL + '/main'
_EXTRA = processes.CELL + '/extra'
_REPLICAS = 2
# The replicas, one server for the other model, and a spare server.
_SERVERS = 4
_ADMINS = 3
_ADMIN = sax.AdminOptions(5 * processes.PATIENCE)
_OLDEST = 'oldest model server'


@dataclasses.dataclass(frozen=True)
class Plan:
  """The durations and the traffic.

  Attributes:
    secs: The duration of the traffic.
    pause_secs: The pause between two changes.
    clients: The number of clients.
    rate: The number of requests per second of each client.
    real: True if engines compute; otherwise, they repeat prompts.
    warm_up_secs: The age from which the memory of a process counts.
    measured_secs: The minimum time that a process must live after that to
      count.
    look_secs: The time between two samples of a process.
  """

  secs: float = 3600.0
  pause_secs: float = 25.0
  clients: int = 3
  rate: float = 4.0
  real: bool = True
  warm_up_secs: float = 180.0
  measured_secs: float = 600.0
  look_secs: float = 5.0


SHORT = Plan(
  secs=24.0,
  pause_secs=1.0,
  clients=2,
  rate=10.0,
  real=False,
  warm_up_secs=4.0,
  measured_secs=4.0,
  look_secs=0.5,
)


class _Looks:
  """A thread that samples processes regularly."""

  def __init__(self, look_secs: float):
    self.readings: dict[str, list[meters.Reading]] = {}
    self._names: dict[int, str] = {}
    self._look_secs = look_secs
    self._ended = threading.Event()
    self._thread = threading.Thread(target=self._run)

  def add(self, name: str, pid: int) -> None:
    """Adds a process to the sampled ones."""
    self._names[pid] = f'{name} {pid}'

  def __enter__(self) -> '_Looks':
    self._thread.start()
    return self

  def __exit__(self, *unused) -> None:
    self._ended.set()
    self._thread.join()

  def _run(self) -> None:
    while not self._ended.wait(self._look_secs):
      for pid, name in list(self._names.items()):
        if reading := meters.read(pid):
          self.readings.setdefault(name, []).append(reading)


class _Soak:
  """The cell, and the changes made to it."""

  def __init__(self, directory: str, plan: Plan, seed: int):
    self.plan = plan
    self.changes: dict[str, int] = {}
    self.failures: list[str] = []
    self.looks = _Looks(plan.look_secs)
    self._directory = directory
    self._rng = random.Random(seed)
    self._servers: list[processes.Process] = []
    self._admins: dict[str, processes.Process] = {}
    self._extra_there = False
    self._checkpoints = [f'{directory}/a', f'{directory}/b']
    for path in self._checkpoints:
      os.mkdir(path)
      small_model.write(path)

  @contextlib.contextmanager
  def started(self) -> Iterator[None]:
    """Runs the whole cell until the context ends."""
    sax.SetRoot(f'{self._directory}/root')
    with processes.Cell(self._directory) as self._cell, self.looks:
      for _ in range(_ADMINS):
        self._start_admin()
      for _ in range(_SERVERS):
        self._start_server()
      self._cell.wait_for_leader()
      self._publish(_MAIN, _REPLICAS)
      self._wait(_MAIN, _REPLICAS)
      yield

  def clients(self, stack: contextlib.ExitStack) -> list[traffic_lib.Traffic]:
    """Starts the clients."""
    clients = []
    for number in range(self.plan.clients):
      client = traffic_lib.Traffic(
        self._cell.path,
        f'client{number}',
        f'--sax_root={self._cell.root}',
        f'--model={_MAIN}',
        f'--rate={self.plan.rate}',
        f'--seed={number}',
        program=_CLIENT,
      )
      clients.append(stack.enter_context(client))
      self.looks.add('client', client.process.pid)
    return clients

  def run(self) -> None:
    """Makes one change after another until the time is up.

    Each change is made at least once, even on a busy machine.
    """
    until = time.monotonic() + self.plan.secs
    changes = (
      self._reload,
      self._take_or_give,
      self._kill_server,
      self._take_or_give,
      self._end_server,
      self._kill_leader,
    )
    for number, change in enumerate(itertools.cycle(changes)):
      once = number >= len(changes)
      pause = time.monotonic() + self.plan.pause_secs
      traffic_lib.sleep_until(min(until, pause) if once else pause)
      if once and time.monotonic() >= until:
        self._check_reasons()
        return
      try:
        while len(self._servers) < _SERVERS:
          self._start_server()
        self._check_reasons()
        name = change()
        # At most one part of the cell is missing at a time.
        self._wait(_MAIN, _REPLICAS)
      except (sax.SaxError, AssertionError, RuntimeError) as e:
        self.failures.append(f'{change.__name__}: {type(e).__name__}: {e}')
        continue
      self.changes[name] = self.changes.get(name, 0) + 1
      left = until - time.monotonic()
      print(f'{left:.0f} s left: {self.changes}', flush=True)

  def _publish(self, model_id: str, replicas: int) -> None:
    overrides = {'ENABLE_GENERATE_STREAM': 'true'}
    if not self.plan.real:
      overrides |= served_lib.LENGTHS
    path = small_model.MODEL_PATH if self.plan.real else served_lib.PARAMS
    sax.Publish(
      model_id, path, self._checkpoints[0], replicas, overrides, _ADMIN
    )

  def _wait(self, model_id: str, replicas: int) -> None:
    sax.WaitForReady(model_id, replicas, _ADMIN)

  def _check_reasons(self) -> None:
    """Records the reasons of replicas that did not make the last change."""
    for replica in sax.ListDetail(_MAIN, _ADMIN).replicas:
      if replica.status == 'LOADED' and replica.reason:
        self.failures.append(f'{_MAIN} at {replica}')

  def _start_admin(self) -> None:
    admin = self._cell.admin()
    self._admins[admin.address] = admin
    self.looks.add('admin server', admin.popen.pid)

  def _start_server(self) -> None:
    if self.plan.real:
      server = self._cell.start(_REAL_SERVER, [], {'JAX_PLATFORMS': 'cpu'})
    else:
      server = self._cell.start(served_lib.SERVER, ['--step_secs=0.05'])
    if not self._servers:
      # Only the oldest server is sampled. The others are killed sooner or
      # later, and load and unload models until then, so their memory shows
      # nothing.
      self.looks.add(_OLDEST, server.popen.pid)
    self._servers.append(server)

  def _reload(self) -> str:
    self._checkpoints.reverse()
    sax.UpdateCheckpoint(_MAIN, self._checkpoints[0], _ADMIN)
    return 'reloads'

  def _take_or_give(self) -> str:
    """Publishes the other model and calls it, or unpublishes it."""
    if self._extra_there:
      sax.Unpublish(_EXTRA, _ADMIN)
      self._extra_there = False
      return 'unpublishes'
    self._publish(_EXTRA, 1)
    self._extra_there = True
    self._wait(_EXTRA, 1)
    model = sax.Model(_EXTRA).LM()
    for number in range(3):
      try:
        model.Generate(f'{number},2', sax.ModelOptions(processes.PATIENCE))
      except sax.SaxError as e:
        self.failures.append(f'{_EXTRA}: {e.code.name}: {e.message}')
    return 'publishes'

  def _pick(self) -> processes.Process:
    """Removes a server and returns it, but never the oldest one.

    The oldest server must run for a long time.
    """
    return self._servers.pop(self._rng.randrange(1, len(self._servers)))

  def _kill_server(self) -> str:
    self._pick().kill()
    self._start_server()
    return 'model servers killed'

  def _end_server(self) -> str:
    server = self._pick()
    server.popen.send_signal(signal.SIGTERM)
    if code := server.popen.wait(processes.PATIENCE):
      self.failures.append(f'a server told to end did so with {code}')
    self._start_server()
    return 'model servers told to end'

  def _kill_leader(self) -> str:
    leader = self._cell.wait_for_leader()
    self._admins.pop(leader).kill()
    self._cell.wait_for_leader(but=[leader])
    self._start_admin()
    return 'leading admin servers killed'


def measure(
  directory: str, plan: Plan = Plan(), seed: int = 0
) -> list[figures.Figure]:
  """Returns the figures of the table's row.

  Args:
    directory: An empty directory.
    plan: The durations and the traffic.
    seed: The seed of the choice of servers and prompts.
  """
  soak = _Soak(directory, plan, seed)
  with soak.started():
    with contextlib.ExitStack() as stack:
      clients = soak.clients(stack)
      soak.looks.add('this test', os.getpid())
      soak.run()
    # Each client has its last answers by now.
    calls = [call for client in clients for call in client.calls()]
  lost = [call for call in calls if call.code != 'OK']
  for text in soak.failures + [f'{c.code} after {c.secs:.1f} s' for c in lost]:
    print(text)
  # On a busy machine, clients start late.
  expected = plan.clients * plan.rate * plan.secs
  return [
    figures.Figure('requests', len(calls), least=int(0.8 * expected)),
    figures.none_of('of those lost, or answered otherwise', lost),
    figures.none_of('other failures', soak.failures),
    figures.Figure('longest request', max(c.secs for c in calls), 's'),
    *(figures.Figure(k, n, least=1) for k, n in sorted(soak.changes.items())),
    *_growth(soak.looks, plan),
  ]


def _growth(looks: _Looks, plan: Plan) -> list[figures.Figure]:
  """Returns the largest growth among processes that lived long enough."""
  lives = {}
  for name, readings in looks.readings.items():
    settled = [r for r in readings if r.at > readings[0].at + plan.warm_up_secs]
    if settled and settled[-1].at - settled[0].at >= plan.measured_secs:
      lives[name] = settled
  for name, settled in lives.items():
    print(
      f'{name}: {settled[0].memory:.1f} to {settled[-1].memory:.1f} MB in'
      f' {settled[-1].at - settled[0].at:.0f} s,'
      f' {meters.slope_per_minute(settled):+.3f} MB a minute;'
      f' {settled[0].descriptors} to {settled[-1].descriptors} descriptors,'
      f' {settled[0].threads} to {settled[-1].threads} threads'
    )

  def worst(of: Callable[[list[meters.Reading]], float]) -> float:
    return max((of(settled) for settled in lives.values()), default=0.0)

  # In a short run, memory that is allocated only once counts as growth.
  long = plan.measured_secs >= 300
  return [
    figures.Figure('processes watched for growth', len(lives), least=1),
    figures.Figure(
      'most growth of memory',
      worst(meters.slope_per_minute),
      'MB a minute',
      most=1 if long else None,
    ),
    figures.Figure(
      'most growth of open descriptors',
      worst(lambda r: _trend([x.descriptors for x in r])),
      most=10 if long else None,
    ),
    figures.Figure(
      'most growth of threads',
      worst(lambda r: _trend([x.threads for x in r])),
      most=10 if long else None,
    ),
  ]


def _trend(values: list[int]) -> float:
  """Returns the mean of the last quarter minus that of the first one."""
  part = max(1, len(values) // 4)
  return sum(values[-part:]) / part - sum(values[:part]) / part
