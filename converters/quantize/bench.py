"""Measures offline_quantize at the size of GPT-J 6B, and kills it on the way.

  bazel run //converters:quantize_bench -- --dir=/data/bench [--kills=10]

Makes a random PAX checkpoint, quantizes it in a process of its own and prints
that process' time and peak memory. With --kills it quantizes again, killed with
SIGKILL that many times at random points and resumed each time, and compares
every file with those of the run that was left alone. Needs as much space as the
source (24 GB for 6B in float32) and twice the result (7 GB). All that it made
in --dir is removed at the end.
"""

from collections.abc import Sequence
import os
import random
import shutil
import subprocess
import sys
import time

from absl import app
from absl import flags
import numpy as np

from converters.convert import model_source
from converters.testing import killed_runs
from saxml_ext.common import program
from saxml_ext.common import user_path
from saxml_ext.families import hf_config
from saxml_ext.families import layout
from saxml_ext.pax import checkpoint
from saxml_ext.pax import checkpoint_writer
from saxml_ext.pax import metadata

_DIR = flags.DEFINE_string('dir', None, 'Directory to work in; made anew.')
_LAYERS = flags.DEFINE_integer('layers', 28, 'Number of layers.', 1)
_DIM = flags.DEFINE_integer('dim', 4096, 'Model dimension.', 1)
_HEADS = flags.DEFINE_integer('heads', 16, 'Number of heads.', 1)
_VOCAB = flags.DEFINE_integer('vocab', 50401, 'Number of tokens.', 1)
_DTYPE = flags.DEFINE_enum(
  'dtype', 'float32', list(model_source.DTYPES), 'Type of the source.'
)
_KILLS = flags.DEFINE_integer('kills', 0, 'How often a second run is killed.')
_FLAGS = flags.DEFINE_multi_string(
  'flag', [], 'Flag for offline_quantize, such as --clipping.'
)

# The program itself; its modules are found as this one's are.
_CHILD = (
  'from converters import offline_quantize; from saxml_ext.common import'
  ' program; program.run(offline_quantize.main)'
)


def _make_source(directory: str) -> int:
  """Writes the source and returns its bytes."""
  shape = hf_config.HFConfig(
    _LAYERS.value, _DIM.value, _HEADS.value, 4 * _DIM.value, _VOCAB.value
  )
  rng = np.random.default_rng(0)
  total = 0
  with checkpoint_writer.Writer(directory) as writer:
    for variable in layout.variables(shape):
      spec = metadata.ArraySpec(variable.shape, _DTYPE.value)
      total += spec.num_bytes
      writer.add_parts(variable.name, spec, _parts(rng, spec))
    writer.commit()
  return total


def _parts(rng: np.random.Generator, spec: metadata.ArraySpec):
  dtype = model_source.DTYPES[spec.dtype]
  for begin, end in spec.row_ranges:
    values = rng.standard_normal((end - begin, *spec.shape[1:]), np.float32)
    yield begin, (values * np.float32(0.02)).astype(dtype, copy=False)


def _start(source: str, pax: str) -> subprocess.Popen:
  command = [sys.executable, '-c', _CHILD]
  command += [f'--input_dir={source}', f'--output_dir={pax}']
  command += ['--resume', '--noreport', *_FLAGS.value]
  env = {**os.environ, 'PYTHONPATH': os.pathsep.join(sys.path)}
  return subprocess.Popen(command, env=env)


def _wait(child: subprocess.Popen) -> int:
  """Waits for success; returns the peak memory in bytes."""
  _, status, usage = os.wait4(child.pid, 0)
  child.returncode = os.waitstatus_to_exitcode(status)
  if child.returncode:
    raise SystemExit(f'offline_quantize ended with {child.returncode}')
  return usage.ru_maxrss << 10


def _measure(root: str) -> bool:
  """Does it all; returns whether nothing differs."""
  source, pax = os.path.join(root, 'float'), os.path.join(root, 'int8')
  begin = time.monotonic()
  source_bytes = _make_source(source)
  print(
    f'source: {source_bytes / 1e9:.2f} GB in {_DTYPE.value}, made in'
    f' {time.monotonic() - begin:.0f} s',
    flush=True,
  )
  begin = time.monotonic()
  peak = _wait(_start(source, pax))
  seconds = time.monotonic() - begin
  expected = killed_runs.digests(pax)
  size = killed_runs.tree_bytes(pax, list(expected))
  print(
    f'quantized: {size / 1e9:.2f} GB in {seconds:.0f} s,'
    f' {source_bytes / seconds / 1e6:.0f} MB/s of the source; peak memory'
    f' {peak / (1 << 30):.2f} GiB',
    flush=True,
  )
  if not _KILLS.value:
    return True
  again = os.path.join(root, 'killed')
  finished = killed_runs.kill(
    lambda: _start(source, again),
    again,
    len(checkpoint.Reader(pax).specs),
    _KILLS.value,
    random.Random(0),
    seconds / 100,
  )
  _wait(_start(source, again))
  same = killed_runs.digests(again) == expected
  print(
    f'killed after {" ".join(map(str, finished))} variables and resumed: all {len(expected)} files are'
    f' {"the same" if same else "NOT the same"}'
  )
  return same


def main(argv: Sequence[str]) -> None:
  del argv
  root = user_path.resolve(_DIR.value)
  if os.path.exists(root):
    raise app.UsageError(f'--dir={root} exists; name one that can be removed')
  os.makedirs(root)
  try:
    same = _measure(root)
  finally:
    shutil.rmtree(root, ignore_errors=True)
  sys.exit(not same)


if __name__ == '__main__':
  flags.mark_flags_as_required(['dir'])
  program.run(main)
