"""Measures the rows of the table whose tests are in other folders."""

from collections.abc import Sequence
import contextlib
import importlib
import io
import logging as standard_logging
import os
import pathlib
import unittest

from absl import logging

from saxml_ext.admin.testing import state_mutants
from tests.chaos import clocks
from tests.chaos import crashes
from tests.chaos import evictions
from tests.chaos import failover
from tests.chaos import heavy
from tests.chaos import hostile
from tests.chaos import losses
from tests.chaos import processes
from tests.reliability.results import figures

Figure = figures.Figure

_CHECKPOINTS = 'converters.convert.hostile_checkpoints_test'


def _p99(name: str, secs: Sequence[float], most: float | None) -> Figure:
  value = processes.percentile(secs, 99) if secs else float('inf')
  return Figure(f'{name} (p99)', value, 's', most=most)


def killed_admin(directory: str, rounds: int, strict: bool) -> list[Figure]:
  """Measures row 1."""
  result = crashes.run(directory, rounds)
  return [
    figures.all_of(
      'rounds with all that was acknowledged', result.intact, rounds
    ),
    Figure('changes acknowledged', result.acknowledged, least=1),
    _p99('answers again after', result.back_secs, 2.0 if strict else None),
  ]


def lost_leader(directory: str, rounds: int, strict: bool) -> list[Figure]:
  """Measures row 2."""
  os.environ['SAX_ROOT'] = directory + '/root'
  result = failover.run(directory, rounds)
  return [
    _p99('next leader after', result.takeover_secs, 3.0 if strict else None),
    figures.all_of(
      'stopped leaders that were refused', result.refused, result.stopped
    ),
    Figure('calls of the model', result.answers, least=1),
    figures.none_of('of those failed', result.failures),
    Figure('acknowledged publishes lost', result.lost, most=0),
  ]


def lost_replicas(
  directory: str, rounds: int, strict: bool, busy_secs: float
) -> list[Figure]:
  """Measures row 3."""
  for part in 'losses', 'evictions':
    os.mkdir(f'{directory}/{part}')
  result = losses.run(
    f'{directory}/losses',
    rounds,
    **({} if strict else {'step_secs': 1.0, 'load': 0.25}),
  )
  stopped = evictions.run(f'{directory}/evictions', 1, busy_secs)
  return [
    Figure('requests', result.requests, least=10_000 if strict else 50),
    figures.none_of('of those lost', result.lost),
    Figure('completed by two engines', result.twice, most=0),
    Figure('longest request', result.longest_secs, 's'),
    _p99('gone from the list after', result.gone_secs, 2.0 if strict else None),
    _p99('replaced after', result.replaced_secs, 5.0 if strict else None),
    Figure('busy servers taken for dead', int(stopped.evicted), most=0),
  ]


def damaged_state(directory: str, mutants: int) -> list[Figure]:
  """Measures row 4."""
  log = pathlib.Path(directory) / 'log'
  handler = standard_logging.FileHandler(log)
  logger = logging.get_absl_logger()
  level = logger.level
  logger.addHandler(handler)
  logger.propagate = False  # The log is long, and only this function reads it.
  logger.setLevel(standard_logging.WARNING)
  files = pathlib.Path(directory) / 'files'
  files.mkdir()
  try:
    with log.open() as read:
      results = state_mutants.run(files, mutants, read.read).values()
  finally:
    logger.removeHandler(handler)
    logger.setLevel(level)
    logger.propagate = True
    handler.close()
  total = sum(r.mutants for r in results)
  return [
    Figure('damaged files', total, least=mutants),
    figures.all_of(
      'starts with all models', sum(r.good for r in results), total
    ),
    figures.all_of(
      'bad files named and set aside', sum(r.named for r in results), total
    ),
  ]


def hostile_names(directory: str) -> list[Figure]:
  """Measures row 6."""
  result = hostile.run(directory)
  return [
    Figure('hostile ids and paths', result.names, least=60),
    Figure('calls with them', result.calls, least=1),
    figures.none_of('not refused', result.accepted),
    figures.none_of('files opened outside the roots', result.opened),
    Figure('files seen to be opened inside', result.watched, least=1),
  ]


def hostile_checkpoints(unused_directory: str) -> list[Figure]:
  """Measures row 7: each part takes at most 1 s and twice the files' size."""
  passed, total = unit_tests(_CHECKPOINTS)
  return [
    Figure('cases, with two that try the test itself', total, least=8),
    figures.all_of('refused in time and memory', passed, total),
  ]


def jumping_clocks(directory: str, secs: float) -> list[Figure]:
  """Measures row 11."""
  result = clocks.run(directory, secs)
  return [
    Figure('jumps of clocks', result.jumps, least=1),
    Figure('looks', result.looks, least=1),
    Figure('double leaders', result.doubles, most=0),
    Figure('changes of leader', result.leaders, most=0),
    Figure('false evictions', result.evictions, most=0),
  ]


def starved_admin(
  directory: str, secs: float, publishes: int, strict: bool = True
) -> list[Figure]:
  """Measures the row "starved"."""
  os.mkdir(f'{directory}/starved')
  run = heavy.starve(f'{directory}/starved', secs)
  result = [
    Figure('calls of others while it is starved', run.calls, least=1),
    figures.none_of('of those refused', run.failed),
    Figure('works again after', run.back_secs, 's', 1.0 if strict else None),
  ]
  for overrides in 900_000, 300_000:
    path = f'{directory}/{overrides}'
    os.mkdir(path)
    run = heavy.override(path, overrides, publishes)
    refused = run.answers.count('RESOURCE_EXHAUSTED')
    what = f'{overrides:,} overrides'
    result += [
      figures.all_of(f'publishes with {what} refused', refused, publishes),
      figures.none_of(f'calls of others refused beside {what}', run.failed),
      Figure(
        f'the slowest of those beside {what}',
        run.slowest_secs,
        's',
        most=1.0 if strict else None,
      ),
    ]
  return result


def unit_tests(module: str, part: str = '') -> tuple[int, int]:
  """Runs the tests of a module whose names contain `part`.

  Returns:
    The number of passed tests, and the number of tests.
  """
  loader = unittest.TestLoader()
  suite = unittest.TestSuite()
  tests = loader.loadTestsFromModule(importlib.import_module(module))
  for case in _flat(tests):
    if part in case.id():
      suite.addTest(case)
  total = suite.countTestCases()
  outcome = unittest.TestResult()
  with contextlib.redirect_stdout(io.StringIO()):
    suite.run(outcome)
  bad = outcome.failures + outcome.errors
  for test, text in bad:
    print(f'{test.id()}: {text.splitlines()[-1]}')
  return total - len(bad) - len(outcome.skipped), total


def _flat(suite: unittest.TestSuite) -> list[unittest.TestCase]:
  cases: list[unittest.TestCase] = []
  for test in suite:
    if isinstance(test, unittest.TestSuite):
      cases += _flat(test)
    else:
      cases.append(test)
  return cases
