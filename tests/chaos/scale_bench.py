"""Measures the duration of a publish in a large cell.

bazel run //tests/chaos:scale_bench
"""

from collections.abc import Sequence
import tempfile

from absl import flags

from saxml_ext.common import program
from tests.chaos import processes
from tests.chaos import scale

_MODELS = flags.DEFINE_integer('models', 1000, 'Published models.')
_SERVERS = flags.DEFINE_integer('servers', 100, 'Model servers.')
_WATCHERS = flags.DEFINE_integer('watchers', 1000, 'Clients that watch.')
_DIRECTORY = flags.DEFINE_string(
  'directory', None, 'The directory of the cell. Default: $TMPDIR.'
)
_ROUNDS = flags.DEFINE_integer(
  'rounds', 300, 'The number of models to add and remove.'
)


def main(argv: Sequence[str]) -> None:
  """Runs the measurement and prints the result."""
  del argv
  with tempfile.TemporaryDirectory(dir=_DIRECTORY.value) as directory:
    result = scale.run(
      directory, _MODELS.value, _SERVERS.value, _WATCHERS.value, _ROUNDS.value
    )
  print(
    f'{_MODELS.value} models, {_SERVERS.value} model servers,'
    f' {_WATCHERS.value} watchers'
  )
  for name in ('filling', 'publishing', 'unpublishing'):
    values = getattr(result, name)
    print(
      f'  {name:13} {len(values):5} calls'
      + ''.join(
        f'  p{p:g} {1e3 * processes.percentile(values, p):.1f} ms'
        for p in (50, 90, 99, 100)
      )
    )
  print(f'  admin server: {result.memory / 2**20:.0f} MiB', end='')
  print(
    f', {100 * result.cpu:.0f} % of a core; {result.loaded} models assigned'
  )


if __name__ == '__main__':
  program.run(main)
