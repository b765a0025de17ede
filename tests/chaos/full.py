"""Runs the full forms of the tests of this directory and prints the results.

    bazel run //tests/chaos:full

It takes about half an hour; --only selects some tests. The figures are only
meaningful on an otherwise idle machine.
"""

from collections.abc import Callable, Sequence
import os
import pathlib
import tempfile

from absl import app
from absl import flags
from absl import logging

from saxml_ext.admin.testing import state_mutants
from saxml_ext.common import program
from tests.chaos import clocks
from tests.chaos import crashes
from tests.chaos import evictions
from tests.chaos import failover
from tests.chaos import hostile
from tests.chaos import losses
from tests.chaos import processes
from tests.chaos import starved
from tests.hosts import namespaces

_CRASHES = flags.DEFINE_integer('crashes', 200, 'Rounds of crashes.')
_FAILOVERS = flags.DEFINE_integer('failovers', 100, 'Rounds of failover.')
_EVICTIONS = flags.DEFINE_integer('evictions', 50, 'Killed model servers.')
_LOSSES = flags.DEFINE_integer(
  'losses', 50, 'The number of replicas to kill under load.'
)
_MUTANTS = flags.DEFINE_integer('mutants', 1000, 'Damaged state files.')
_CLOCK_SECS = flags.DEFINE_float(
  'clock_secs', 120.0, 'The seconds during which clocks jump.'
)
_STARVED_ROUNDS = flags.DEFINE_integer(
  'starved', 5, 'The number of rounds of each failure.'
)
_ONLY = flags.DEFINE_list('only', [], 'The names of the tests. Default: all.')


# The reason why disks cannot be mounted here; '' if they can.
_obstacle = ''


def _crashes(directory: str) -> list[str]:
  result = crashes.run(directory, _CRASHES.value)
  return [
    f'{result.intact}/{result.rounds} rounds with all that was acknowledged'
    f' ({result.acknowledged} changes), and nothing by halves',
    f'answers again after {_seconds(result.back_secs)}',
  ]


def _failover(directory: str) -> list[str]:
  os.environ['SAX_ROOT'] = directory + '/root'
  result = failover.run(directory, _FAILOVERS.value)
  return [
    f'next leader after {_seconds(result.takeover_secs)}',
    f'{result.refused}/{result.stopped} stopped leaders refused',
    f'{len(result.failures)} of {result.answers} calls of the model failed',
    f'{result.lost} acknowledged publishes lost',
  ]


def _evictions(directory: str) -> list[str]:
  result = evictions.run(directory, _EVICTIONS.value, busy_secs=15)
  return [
    f'left the address list after {_seconds(result.gone_secs)}',
    f'one that was stopped for {result.busy_secs:g} s was'
    f' {"evicted" if result.evicted else "kept"}',
  ]


def _losses(directory: str) -> list[str]:
  result = losses.run(directory, _LOSSES.value)
  return [
    f'{len(result.lost)} of {result.requests} requests lost,'
    f' {result.twice} completed by two engines, at'
    f' {result.rate:.0f} a second; longest {result.longest_secs:.2f} s',
    f'left the address list after {_seconds(result.gone_secs)}',
    f'replaced after {_seconds(result.replaced_secs)}',
  ]


def _mutants(directory: str) -> list[str]:
  log = pathlib.Path(directory) / 'log'
  handler = logging.logging.FileHandler(log)
  logging.get_absl_logger().addHandler(handler)
  logging.set_verbosity(logging.WARNING)
  read = log.open()
  files = pathlib.Path(directory) / 'files'
  files.mkdir()
  results = state_mutants.run(files, _MUTANTS.value, read.read)
  logging.set_verbosity(logging.FATAL)
  logging.get_absl_logger().removeHandler(handler)
  total = sum(r.mutants for r in results.values())
  return [
    f'{sum(r.good for r in results.values())}/{total} starts with all models',
    f'{sum(r.named for r in results.values())}/{total} bad files named and'
    ' set aside',
  ]


def _hostile(directory: str) -> list[str]:
  result = hostile.run(directory)
  return [
    f'{result.names} texts, {result.calls} calls:'
    f' {len(result.accepted)} not refused',
    f'{len(result.opened)} files touched outside of the cell'
    f' (inside: {result.watched} times)',
  ]


def _clocks(directory: str) -> list[str]:
  result = clocks.run(directory, _CLOCK_SECS.value)
  return [
    f'{result.jumps} jumps in {result.secs:g} s, {result.looks} looks:'
    f' {result.doubles} double leaders, {result.leaders} changes of leader,'
    f' {result.evictions} evictions'
  ]


def _starved(directory: str) -> list[str]:
  lines = []
  for trouble in (
    starved.limited,
    starved.full,
    starved.read_only,
    starved.away,
  ):
    if _obstacle and trouble in starved.MOUNTING:
      lines.append(f'{trouble.__name__}: not tested: {_obstacle}')
    else:
      lines.append(_starve(f'{directory}/{trouble.__name__}', trouble))
  return lines


def _starve(directory: str, trouble: Callable) -> str:
  results = []
  for number in range(_STARVED_ROUNDS.value):
    path = f'{directory}{number}'
    os.mkdir(path)
    with trouble(path) as failure:
      results.append(starved.run(path, failure))
  return (
    f'{trouble.__name__}: {sum(r.refused for r in results)} changes refused,'
    f' {sum(r.accepted for r in results)} accepted,'
    f' {sum(len(r.unclear) for r in results)} unclear, in at most'
    f' {max(r.slowest_secs for r in results):.1f} s; addresses told in'
    f' {sum(r.answered for r in results)}/{sum(r.looks for r in results)}'
    ' looks;'
    f' works again after {_seconds([r.recovery_secs for r in results])};'
    f' intact {sum(r.intact for r in results)}/{len(results)}'
  )


def _seconds(values: Sequence[float]) -> str:
  p50, p99 = (processes.percentile(values, p) for p in (50, 99))
  return f'{p50:.2f} s (p50), {p99:.2f} s (p99), {max(values):.2f} s (most)'


_TESTS = {
  'crashes': _crashes,
  'failover': _failover,
  'evictions': _evictions,
  'losses': _losses,
  'mutants': _mutants,
  'hostile': _hostile,
  'clocks': _clocks,
  'starved': _starved,
}


def main(argv: Sequence[str]) -> None:
  """Runs the tests and prints the results."""
  del argv
  unknown = set(_ONLY.value) - _TESTS.keys()
  if unknown:
    raise app.UsageError(f'--only: {unknown} unknown; there are {list(_TESTS)}')
  logging.set_verbosity(logging.FATAL)
  for name in _ONLY.value or _TESTS:
    with tempfile.TemporaryDirectory() as directory:
      for line in _TESTS[name](directory):
        print(f'{name:10} {line}', flush=True)


if __name__ == '__main__':
  _obstacle = namespaces.enter(starved.NAMESPACES, starved.PROBE)
  program.run(main)
