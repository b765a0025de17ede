"""Measures a converter at the size of GPT-J 6B, optionally with interruptions.

  bazel run //converters:convert_bench -- --dir=/data/bench [--kills=10]
  bazel run //converters:quantize_bench -- --dir=/data/bench [--kills=10]

The benchmark makes a random checkpoint and measures the speed of a sequential
write to the disk. It then converts or quantizes the checkpoint in a separate
process and prints one table. With --kills it repeats the run, kills it with
SIGKILL that many times at random points, and resumes it each time. Every file
must then equal the file of the uninterrupted run.

The directory needs space for the source and two copies of the result. For 6B
these are 12 and 48 GB to convert, and 24 and 14 GB to quantize. The benchmark
removes everything that it wrote to --dir when it ends.
"""

from collections.abc import Iterator, Sequence
import os
import random
import shutil
import sys
import time

from absl import flags
import numpy as np
from rich import box
from rich import console as rich_console
from rich import table as rich_table

from converters import model_flags
from converters.convert import model_source
from converters.convert import random_weights
from converters.testing import killed_runs
from saxml_ext.common import flag_rules
from saxml_ext.common import program
from saxml_ext.common import user_path
from saxml_ext.families import layout
from saxml_ext.pax import checkpoint
from saxml_ext.pax import checkpoint_writer
from saxml_ext.pax import metadata

_TOOL = flags.DEFINE_enum(
  'tool', 'convert', ['convert', 'quantize'], 'The program to measure.'
)
_DIR = flags.DEFINE_string(
  'dir', None, 'The work directory, which must not exist.'
)
_SOURCE_DTYPE = flags.DEFINE_enum(
  'source_dtype',
  'bfloat16',
  list(model_source.DTYPES),
  'The type of the weights to convert.',
)
_DTYPE = flags.DEFINE_enum(
  'dtype',
  'float32',
  list(model_source.DTYPES),
  'The type of the float PAX checkpoint.',
)
_KILLS = flags.DEFINE_integer(
  'kills', 0, 'The number of times that a second run is killed.', 0
)
_FLAGS = flags.DEFINE_multi_string(
  'flag', [], 'A flag for the program, such as --clipping for offline_quantize.'
)
# The sizes of GPT-J 6B, split into files like its official checkpoint.
for _name, _default in (
  *(('layers', 28), ('dim', 4096), ('heads', 16), ('vocab', 50401)),
  *(('shards', 6), ('format', 'bin')),
):
  flags.FLAGS.set_default(_name, _default)
flag_rules.act_only(
  'with --tool=convert',
  lambda: _TOOL.value == 'convert',
  'shards format source_dtype',
)

_BLOCK_BYTES = 1 << 24
_MAX_PROBE_BYTES = 4 << 30


def _disk_rate(directory: str, num_bytes: int) -> float:
  """Returns the write speed of the disk in bytes per second, sync included."""
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


def _make_source(source: str) -> None:
  head_dim = model_flags.DIM.value // model_flags.HEADS.value
  config = model_flags.sizes(min(64, head_dim))
  if _TOOL.value == 'convert':
    random_weights.write(
      source,
      config,
      model_flags.FORMAT.value,
      model_flags.SHARDS.value,
      model_flags.SEED.value,
      _SOURCE_DTYPE.value,
    )
    return
  rng = np.random.default_rng(model_flags.SEED.value)
  with checkpoint_writer.Writer(source) as writer:
    for variable in layout.variables(config):
      spec = variable.spec(_DTYPE.value)
      writer.add_parts(variable.name, spec, _parts(rng, spec))
    writer.commit()


def _parts(
  rng: np.random.Generator, spec: metadata.ArraySpec
) -> Iterator[tuple[int, np.ndarray]]:
  dtype = model_source.DTYPES[spec.dtype]
  for begin, end in spec.row_ranges:
    values = rng.standard_normal((end - begin, *spec.shape[1:]), np.float32)
    yield begin, (values * np.float32(0.02)).astype(dtype, copy=False)


def _command(source: str, pax: str) -> list[str]:
  """Returns the command line of the converter to measure."""
  if _TOOL.value == 'convert':
    words = ['convert_gptj_ckpt', f'--base={source}', f'--pax={pax}']
    words.append(f'--dtype={_DTYPE.value}')
  else:
    words = ['offline_quantize', f'--input_dir={source}', f'--output_dir={pax}']
    words.append('--noreport')
  return [*words, '--resume', *_FLAGS.value]


def _tree_bytes(directory: str) -> int:
  return killed_runs.tree_bytes(directory, [*killed_runs.digests(directory)])


def _print(rows: Sequence[tuple[str, str]]) -> None:
  table = rich_table.Table(box=box.SIMPLE, show_header=False)
  table.add_column()
  table.add_column(justify='right')
  for row in rows:
    table.add_row(*row)
  rich_console.Console(markup=False, highlight=False, width=100).print(table)


def _measure(root: str) -> bool:
  """Runs all measurements; returns True if the resumed run gave equal files."""
  source, pax = os.path.join(root, 'source'), os.path.join(root, 'pax')
  begin = time.monotonic()
  _make_source(source)
  made = time.monotonic() - begin
  source_bytes = _tree_bytes(source)
  rates = [_disk_rate(root, 2 * source_bytes)]
  run = killed_runs.run(*_command(source, pax))
  print(run.output, end='', flush=True)
  rates.append(_disk_rate(root, 2 * source_bytes))
  specs = checkpoint.Reader(pax).specs
  num_bytes = sum(spec.num_bytes for spec in specs.values())
  on_disk, disk = _tree_bytes(pax), sum(rates) / 2
  rows = [
    ('source', f'{source_bytes / 1e9:.1f} GB'),
    ('time to write the source', f'{made:.0f} s'),
    ('disk MB/s before, after', ', '.join(f'{r / 1e6:.0f}' for r in rates)),
    ('disk, sequential write', f'{disk / 1e6:.0f} MB/s'),
    ('variables', f'{num_bytes / 1e9:.2f} GB'),
    ('files of the checkpoint', f'{on_disk / 1e9:.2f} GB'),
    ('seconds', f'{run.seconds:.1f}'),
  ]
  for label, size in (
    ('source', source_bytes),
    ('variables', num_bytes),
    ('files', on_disk),
  ):
    rate = size / run.seconds
    rows.append((f'{label} per second', f'{rate / 1e6:.0f} MB/s'))
    rows.append(('share of the disk rate', f'{100 * rate / disk:.0f} %'))
  rows.append(('peak memory', f'{run.peak_bytes / (1 << 30):.2f} GiB'))
  equal = True
  if _KILLS.value:
    again = os.path.join(root, 'again')
    finished = killed_runs.kill(
      lambda: killed_runs.start(*_command(source, again)),
      again,
      len(specs),
      _KILLS.value,
      random.Random(model_flags.SEED.value),
      jitter=run.seconds / 100,
    )
    last = killed_runs.run(*_command(source, again))
    expected, actual = killed_runs.digests(pax), killed_runs.digests(again)
    same = sum(actual.get(name) == d for name, d in expected.items())
    equal = actual == expected
    rows += [
      (f'kills after, of {len(specs)} variables', ' '.join(map(str, finished))),
      ('last run', f'{last.seconds:.1f} s'),
      ('peak memory of the last run', f'{last.peak_bytes / (1 << 30):.2f} GiB'),
      (f'equal files, of {len(expected)}', str(same)),
    ]
  _print(rows)
  return equal


def main(argv: Sequence[str]) -> None:
  del argv
  root = user_path.resolve(_DIR.value)
  if os.path.exists(root):
    sys.exit(f'{_TOOL.value}_bench: {root} exists. Choose a new directory.')
  os.makedirs(root)
  try:
    equal = _measure(root)
  finally:
    shutil.rmtree(root)
  if not equal:
    sys.exit('The result of the resumed run differs.')


if __name__ == '__main__':
  flags.mark_flags_as_required(['dir'])
  program.run(main)
