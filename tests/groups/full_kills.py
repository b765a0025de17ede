"""Runs the full form of kills_test, with many lost processes.

    bazel run //tests/groups:full_kills -- --kills=100

It takes about half an hour. The figures are only meaningful on an otherwise
idle machine.
"""

from collections.abc import Sequence
import tempfile

from absl import flags

from saxml_ext.common import program
from tests.chaos import processes
from tests.groups import kills

_KILLS = flags.DEFINE_integer(
  'kills', 100, 'The number of processes to kill or stop.', 1
)
_SIZE = flags.DEFINE_integer(
  'size', 2, 'The number of processes of each group.', 2
)
_SEED = flags.DEFINE_integer('seed', 0, 'The seed of the choices and times.')
_RATE = flags.DEFINE_float('rate', 20.0, 'Requests a second.')
_STEP_SECS = flags.DEFINE_float(
  'step_secs', 0.5, 'The duration of a step of the engine.'
)


def main(argv: Sequence[str]) -> int:
  del argv
  with tempfile.TemporaryDirectory(prefix='full_kills_') as directory:
    result = kills.run(
      directory,
      kills.at_random(_KILLS.value, _SIZE.value, _SEED.value),
      size=_SIZE.value,
      step_secs=_STEP_SECS.value,
      rate=_RATE.value,
    )
  print(
    f'{sum(result.kills.values())} of two groups of {_SIZE.value} lost:'
    f' {result.kills}. {result.stopped} were stopped instead of killed, and'
    f' {result.starting} were lost while their group was starting.'
  )
  print(
    f'{len(result.lost)} of {result.requests} requests lost, {result.twice}'
    f' completed by two engines, at {result.rate:g} requests per second. The'
    f' longest took {result.longest_secs:.2f} s.'
  )
  if secs := result.gone_secs:
    p50, p99 = (processes.percentile(secs, p) for p in (50, 99))
    print(
      f'gone from the address list after {p50:.2f} s (p50), {p99:.2f} s (p99),'
      f' {max(secs):.2f} s (most)'
    )
  for text in result.lost[:10]:
    print(f'  {text}')
  return 1 if result.lost or result.zeros else 0


if __name__ == '__main__':
  program.run(main)
