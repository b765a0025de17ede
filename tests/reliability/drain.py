"""Tests planned changes under traffic: servers end, reloads, fewer replicas.

None of these changes may cost a request.
"""

from collections.abc import Callable
import operator
import os
import signal
import time

from saxml_ext.client import sax
from saxml_ext.server.testing import small_model
from tests.chaos import evictions
from tests.chaos import processes
from tests.reliability import served as served_lib
from tests.reliability.clients import traffic as traffic_lib
from tests.reliability.results import figures

_STEP_SECS = 0.1
_TOKENS = 3
_RATE = 30.0
_PAUSE_SECS = 1.0
_ADMIN = sax.AdminOptions(processes.PATIENCE)


def measure(directory: str, rounds: int = 10) -> list[figures.Figure]:
  """Returns the figures of the table's row.

  Args:
    directory: An empty directory.
    rounds: The number of rounds of each change.
  """
  sax.SetRoot(f'{directory}/root')
  checkpoints = [f'{directory}/a', f'{directory}/b']
  for path in checkpoints:
    os.mkdir(path)
    small_model.write(path)
  flags = [f'--step_secs={_STEP_SECS}']
  results = []
  with served_lib.start(
    directory, flags, served_lib.LENGTHS, replicas=2
  ) as served:
    codes: list[int] = []
    client = [*served.client_flags, f'--rate={_RATE}', f'--tokens={_TOKENS}']
    for name, change in (
      (
        'told to end (SIGTERM)',
        lambda: codes.append(_terminate(served, flags)),
      ),
      ('reloaded', lambda: _reload(served, checkpoints)),
      ('with one replica taken away and added again', _fewer),
    ):
      results += _under_traffic(served, name, change, rounds, client)
  return [
    *results,
    figures.none_of(
      'servers that ended with another code than 0', [c for c in codes if c]
    ),
  ]


def _under_traffic(
  served: served_lib.Served,
  name: str,
  change: Callable[[], None],
  rounds: int,
  client: list[str],
) -> list[figures.Figure]:
  file = name.split(maxsplit=1)[0]
  with traffic_lib.Traffic(served.cell.path, file, *client) as traffic:
    for _ in range(rounds):
      time.sleep(_PAUSE_SECS)
      change()
      served_lib.wait_for_replicas(served.cell, 2)
    time.sleep(_PAUSE_SECS)
  calls = traffic.calls()
  for call in [c for c in calls if c.code != 'OK'][:5]:
    print(f'{name}: {call.code} after {call.secs:.2f} s')
  return [
    figures.Figure(f'requests, {rounds} times {name}', len(calls), least=1),
    figures.none_of('of those lost', [c for c in calls if c.code != 'OK']),
    figures.Figure('longest of them', max(c.secs for c in calls), 's'),
  ]


def _terminate(served: served_lib.Served, flags: list[str]) -> int:
  """Ends the older server while the other one serves; returns its exit code."""
  server = served.servers.pop(0)
  server.popen.send_signal(signal.SIGTERM)
  code = server.popen.wait(processes.PATIENCE)
  processes.wait(
    lambda: (
      server.address not in evictions.addresses(served.cell, served_lib.MODEL)
    )
  )
  served.servers.append(served.cell.start(served_lib.SERVER, flags))
  return code


def _reload(served: served_lib.Served, checkpoints: list[str]) -> None:
  """Makes the servers load the next checkpoint; returns when they serve it."""
  checkpoints.append(checkpoints.pop(0))
  done = f'{served_lib.MODEL} serves {checkpoints[0]}'

  def counts() -> list[int]:
    return [s.log.read_text().count(done) for s in served.servers]

  before = counts()
  sax.UpdateCheckpoint(served_lib.MODEL, checkpoints[0], _ADMIN)
  processes.wait(lambda: all(map(operator.gt, counts(), before)))


def _fewer() -> None:
  sax.UpdateReplicas(served_lib.MODEL, 1, _ADMIN)
  time.sleep(_PAUSE_SECS)
  sax.UpdateReplicas(served_lib.MODEL, 2, _ADMIN)
