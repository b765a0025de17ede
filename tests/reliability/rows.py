"""Defines the full and the short test of each row of the table."""

from collections.abc import Callable, Sequence
import os

from tests.reliability import chaos_rows
from tests.reliability import drain
from tests.reliability import fuzz
from tests.reliability import limits
from tests.reliability import loadgen_runs
from tests.reliability import over_http
from tests.reliability import overload
from tests.reliability import readers
from tests.reliability import soak
from tests.reliability.results import figures

# A test takes the path of an empty directory.
_Test = Callable[[str], Sequence[figures.Figure]]

# The reason why file systems cannot be mounted here; '' if they can. The
# program sets it.
obstacle = ''


def _storage(rounds: int, strict: bool) -> _Test:
  def test(directory: str) -> Sequence[figures.Figure]:
    # Only this row needs the emulators of buckets.
    from tests.reliability import storage_row

    return storage_row.measure(directory, rounds, strict, obstacle)

  return test


def _overload(directory: str) -> Sequence[figures.Figure]:
  paths = [f'{directory}/{part}' for part in ('grpc', 'http')]
  for path in paths:
    os.mkdir(path)
  return [*overload.measure(paths[0]), *over_http.measure(paths[1])]


FULL: dict[str, _Test] = {
  '1': lambda d: chaos_rows.killed_admin(d, 200, True),
  '2': lambda d: chaos_rows.lost_leader(d, 100, True),
  '3': lambda d: chaos_rows.lost_replicas(d, 50, True, 15.0),
  '4': lambda d: chaos_rows.damaged_state(d, 1000),
  '5': lambda d: fuzz.measure(d, 100_000),
  '6': chaos_rows.hostile_names,
  '7': chaos_rows.hostile_checkpoints,
  '8': readers.measure,
  '9': limits.measure,
  '10': _overload,
  '11': lambda d: chaos_rows.jumping_clocks(d, 120.0),
  '12': _storage(5, True),
  'starved': lambda d: chaos_rows.starved_admin(d, 10.0, 2),
  'drain': lambda d: drain.measure(d, 10),
  'loadgen': loadgen_runs.measure,
  'soak': soak.measure,
}

SHORT: dict[str, _Test] = {
  '1': lambda d: chaos_rows.killed_admin(d, 6, False),
  '2': lambda d: chaos_rows.lost_leader(d, 2, False),
  '3': lambda d: chaos_rows.lost_replicas(d, 2, False, 5.0),
  '4': lambda d: chaos_rows.damaged_state(d, 60),
  '5': lambda d: fuzz.measure(
    d, 1500, rate=1000.0, window_secs=1.0, ratio=None
  ),
  '6': chaos_rows.hostile_names,
  '7': chaos_rows.hostile_checkpoints,
  '8': lambda d: readers.measure(d, readers.SHORT, strict=False),
  '9': lambda d: limits.measure(d, late=200, strict=False),
  '10': lambda d: overload.measure(d, overload.SHORT, strict=False),
  '11': lambda d: chaos_rows.jumping_clocks(d, 6.0),
  '12': _storage(1, False),
  'starved': lambda d: chaos_rows.starved_admin(d, 5.0, 1, strict=False),
  'drain': lambda d: drain.measure(d, 1),
  'loadgen': lambda d: loadgen_runs.measure(d, strict=False),
  'soak': lambda d: soak.measure(d, soak.SHORT),
}
