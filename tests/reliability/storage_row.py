"""Measures the row of failing storage, for servers and for conversions."""

from collections.abc import Callable
import os

from tests.chaos import starved
from tests.reliability import chaos_rows
from tests.reliability.results import figures

Figure = figures.Figure

_CONVERSION = 'converters.convert_gptj_ckpt_test'


def measure(
  directory: str, rounds: int, strict: bool, obstacle: str
) -> list[Figure]:
  """Returns the figures of the row.

  Args:
    directory: An empty directory.
    rounds: The number of rounds of each failure.
    strict: True if times count.
    obstacle: The reason why disks cannot be mounted here; '' if they can.
  """
  results = []
  for trouble in (
    starved.limited,
    starved.full,
    starved.read_only,
    starved.away,
  ):
    name = trouble.__name__.replace('_', ' ')
    if obstacle and trouble in starved.MOUNTING:
      print(f'{name}: not tested: {obstacle}')
      results.append(Figure(f'{name}: rounds', 0, least=rounds))
    else:
      path = f'{directory}/{trouble.__name__}'
      results += _starved(path, name, trouble, rounds, strict)
  passed, total = chaos_rows.unit_tests(_CONVERSION, 'resume')
  results.append(
    figures.all_of('tests of interrupted conversions', passed, total)
  )
  return results


def _starved(
  path: str, name: str, trouble: Callable, rounds: int, strict: bool
) -> list[Figure]:
  results = []
  for number in range(rounds):
    directory = f'{path}{number}'
    os.mkdir(directory)
    with trouble(directory) as failure:
      patience = {} if strict else {'secs': 3.0, 'try_secs': 15.0}
      results.append(starved.run(directory, failure, **patience))
  recovery = max(r.recovery_secs for r in results)
  return [
    Figure(
      f'{name}: changes refused', sum(r.refused for r in results), least=1
    ),
    Figure(
      f'{name}: changes accepted, or not clearly refused',
      sum(r.accepted + len(r.unclear) for r in results),
      most=0,
    ),
    figures.all_of(
      f'{name}: looks that found the model',
      sum(r.answered for r in results),
      sum(r.looks for r in results),
    ),
    figures.all_of(
      f'{name}: rounds intact', sum(r.intact for r in results), rounds
    ),
    Figure(
      f'{name}: works again within',
      recovery,
      's',
      most=2.0 if strict else None,
    ),
  ]
