"""Measures the converter at the size of GPT-J 6B, and kills it on the way.

  bazel run //converters:convert_bench -- --dir=/data/bench [--kills=10]

makes a random checkpoint, measures how fast the disk takes a file written from
its beginning to its end, converts, and prints one table. With --kills it
converts again, killed with SIGKILL that many times at random points and resumed
each time, and compares every file with those of the run that was left alone.
Needs as much space as the source (12 GB for 6B in bfloat16) and the result
(24 GB in float32) together. All of --dir that it made is removed at the end.
"""

from collections.abc import Sequence
import json
import os
import random
import shutil
import sys
import time

from absl import flags
from rich import box
from rich import console as rich_console
from rich import table as rich_table

from converters.convert import model_source
from converters.convert import random_weights
from converters.testing import killed_runs
from saxml_ext.common import program
from saxml_ext.common import user_path
from saxml_ext.families import hf_config

_DIR = flags.DEFINE_string('dir', None, 'Directory to work in; made anew.')
_LAYERS = flags.DEFINE_integer('layers', 28, 'Number of layers.', 1)
_DIM = flags.DEFINE_integer('dim', 4096, 'Model dimension.', 1)
_HEADS = flags.DEFINE_integer('heads', 16, 'Number of heads.', 1)
_VOCAB = flags.DEFINE_integer('vocab', 50400, 'Number of tokens.', 1)
_FORMAT = flags.DEFINE_enum(
  'format', 'bin', ['safetensors', 'bin'], 'Format of the source.'
)
_SHARDS = flags.DEFINE_integer('shards', 6, 'Files of the source.', 1)
_SOURCE_DTYPE = flags.DEFINE_enum(
  'source_dtype', 'bfloat16', list(model_source.DTYPES), 'Type of the source.'
)
_DTYPE = flags.DEFINE_enum(
  'dtype', 'float32', list(model_source.DTYPES), 'Type of the result.'
)
_KILLS = flags.DEFINE_integer(
  'kills', 0, 'How often a second run is killed.', 0
)
_SEED = flags.DEFINE_integer('seed', 0, 'Chooses weights and points of kills.')

_BLOCK_BYTES = 1 << 24
_MAX_PROBE_BYTES = 4 << 30


def _disk_rate(directory: str, num_bytes: int) -> float:
  """Bytes per second of one file written in order and forced to the disk."""
  path = os.path.join(directory, 'probe')
  block = os.urandom(_BLOCK_BYTES)
  blocks = max(1, min(num_bytes, _MAX_PROBE_BYTES) // _BLOCK_BYTES)
  begin = time.monotonic()
  with open(path, 'wb') as f:
    for _ in range(blocks):
      f.write(block)
    f.flush()
    os.fsync(f.fileno())
  seconds = time.monotonic() - begin
  os.unlink(path)
  return blocks * _BLOCK_BYTES / seconds


def _make_source(base: str) -> float:
  begin = time.monotonic()
  shape = hf_config.HFConfig(
    _LAYERS.value, _DIM.value, _HEADS.value, 4 * _DIM.value, _VOCAB.value
  )
  random_weights.write(
    base,
    shape,
    min(64, shape.head_dim),
    _FORMAT.value,
    _SHARDS.value,
    _SEED.value,
    _SOURCE_DTYPE.value,
  )
  return time.monotonic() - begin


def _sizes(pax: str) -> tuple[int, int, int]:
  """Number of variables, their bytes, and bytes of all files."""
  step_dir = os.path.join(pax, 'checkpoint_00000000')
  with open(os.path.join(step_dir, 'manifest.json'), 'rb') as f:
    variables = json.load(f)['variables']
  names = [
    os.path.join(parent, name)
    for parent, _, names in os.walk(step_dir)
    for name in names
  ]
  return (
    len(variables),
    sum(v['bytes'] for v in variables.values()),
    killed_runs.tree_bytes('', names),
  )


def _print(rows: Sequence[tuple[str, str]]) -> None:
  table = rich_table.Table(box=box.SIMPLE, show_header=False)
  table.add_column()
  table.add_column(justify='right')
  for row in rows:
    table.add_row(*row)
  rich_console.Console(markup=False, highlight=False, width=100).print(table)


def _measure(root: str) -> bool:
  """Does it all; returns whether nothing differs."""
  base, pax = os.path.join(root, 'hf'), os.path.join(root, 'pax')
  made = _make_source(base)
  source_bytes = killed_runs.tree_bytes(base, os.listdir(base))
  rates = [_disk_rate(root, 2 * source_bytes)]
  run = killed_runs.run(base, pax, _DTYPE.value)
  print(run.output, end='', flush=True)
  rates.append(_disk_rate(root, 2 * source_bytes))
  variables, num_bytes, on_disk = _sizes(pax)
  disk, rate = sum(rates) / 2, num_bytes / run.seconds
  rows = [
    ('source', f'{_FORMAT.value}, {source_bytes / 1e9:.1f} GB'),
    ('made in', f'{made:.0f} s'),
    ('disk, before and after', ', '.join(f'{r / 1e6:.0f}' for r in rates)),
    ('disk, one file in order', f'{disk / 1e6:.0f} MB/s'),
    ('variables', f'{num_bytes / 1e9:.2f} GB'),
    ('files of the checkpoint', f'{on_disk / 1e9:.2f} GB'),
    ('seconds', f'{run.seconds:.1f}'),
    ('variables per second', f'{rate / 1e6:.0f} MB/s'),
    ('of the disk', f'{100 * rate / disk:.0f} %'),
    ('files per second', f'{on_disk / run.seconds / 1e6:.0f} MB/s'),
    ('of the disk', f'{100 * on_disk / run.seconds / disk:.0f} %'),
    ('peak memory', f'{run.peak_bytes / (1 << 30):.2f} GiB'),
  ]
  equal = True
  if _KILLS.value:
    expected = killed_runs.digests(pax)
    shutil.rmtree(pax)
    finished, last = killed_runs.run_killed(
      base,
      pax,
      _DTYPE.value,
      variables,
      _KILLS.value,
      random.Random(_SEED.value),
      jitter=1.0,
    )
    found = killed_runs.digests(pax)
    equal = found == expected
    rows += [
      (f'killed after, of {variables}', ' '.join(map(str, finished))),
      ('last run', f'{last.seconds:.1f} s'),
      ('its peak memory', f'{last.peak_bytes / (1 << 30):.2f} GiB'),
      (
        f'files equal, of {len(expected)}',
        str(sum(found.get(n) == d for n, d in expected.items())),
      ),
    ]
  _print(rows)
  return equal


def main(argv: Sequence[str]) -> None:
  del argv
  root = user_path.resolve(_DIR.value)
  if os.path.exists(root):
    sys.exit(f'convert_bench: {root} exists; name a new one')
  os.makedirs(root)
  try:
    equal = _measure(root)
  finally:
    shutil.rmtree(root)
  if not equal:
    sys.exit('The resumed result differs.')


if __name__ == '__main__':
  flags.mark_flags_as_required(['dir'])
  program.run(main)
