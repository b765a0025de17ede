"""Prints the overhead of a group per call of the engine.

    bazel run //tests/groups:group_cost

The goal is that the log adds at most 1 ms (p50) to the time of the same
processes without it. The figures are only meaningful on an otherwise idle
machine.
"""

from collections.abc import Sequence
import os
import tempfile

from absl import flags

from harness.benchmarks import gptj
from saxml_ext.common import program
from saxml_ext.common import user_path
from tests.groups import cost

_TURNS = flags.DEFINE_integer('turns', 20, 'Of each set-up.', 1)
_ROUNDS = flags.DEFINE_integer(
  'rounds', 10, 'The number of rounds of calls in a turn.', 1
)
_MESH = flags.DEFINE_list(
  'mesh', ['1', '1', '2'], 'The sizes of the mesh axes: replica, data, model.'
)
_CHECKPOINT = flags.DEFINE_string(
  'checkpoint',
  gptj.BUNDLE.pax,
  'The PAX checkpoint of the bundled model. Default: that of Bazel.',
)
_JAX_CACHE_DIR = flags.DEFINE_string(
  'jax_cache_dir', None, 'The cache of compiled programs. Default: no cache.'
)


def main(argv: Sequence[str]) -> None:
  del argv
  if not _CHECKPOINT.value:
    raise SystemExit('group_cost: Set --checkpoint, or use bazel run.')
  mesh = [int(size) for size in _MESH.value]
  log_dir = tempfile.mkdtemp(prefix='group_cost_')
  seconds = cost.measure(
    user_path.resolve(_CHECKPOINT.value),
    cost.Load(_TURNS.value, _ROUNDS.value, mesh),
    log_dir,
    _JAX_CACHE_DIR.value or os.path.join(log_dir, 'jax'),
  )
  print(f'the bundled model on two CPU devices, mesh {mesh}; ms')
  print(f'{"call":18} {"":18} {"p50":>8} {"p99":>8} {"calls":>6}')
  for call, by_setup in seconds.items():
    for setup, values in by_setup.items():
      p50, p99 = (1e3 * cost.percentile(values, p) for p in (50, 99))
      print(f'{call:18} {setup:18} {p50:8.2f} {p99:8.2f} {len(values):6d}')
    added = [
      1e3
      * (
        cost.percentile(by_setup[cost.LOG], p)
        - cost.percentile(by_setup[cost.COPIES], p)
      )
      for p in (50, 99)
    ]
    print(f'{call:18} {"the log adds":18} {added[0]:8.2f} {added[1]:8.2f}')


if __name__ == '__main__':
  program.run(main)
