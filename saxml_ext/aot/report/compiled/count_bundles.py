"""Counts the bundles of the engine's kernels for prompts and rows.

Compiles each of them alone for a TPU, for every size that GPT-J's programs have
on 2 to 16 chips, and reads the code that libtpu dumps. Needs libtpu, but no
TPU, and takes a minute. `kernels.py` reads the file that this writes.
"""

from collections.abc import Iterator, Sequence
import functools
import json
import os
import pathlib
import tempfile

from absl import app
from absl import flags
import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.aot.report.compiled import bundles
from saxml_ext.aot.report.compiled import compiler
from saxml_ext.aot.report.compiled import hlo_costs
from saxml_ext.aot.report.compiled import hlo_text
from saxml_ext.aot.report.compiled import kernels
from saxml_ext.aot.tpu import setup
from saxml_ext.aot.tpu import topologies
from saxml_ext.engine.kernels.tpu import prefill_attention
from saxml_ext.engine.kernels.tpu import rows

_OUT = flags.DEFINE_string('out', None, 'File to write.')
_TOPOLOGY = flags.DEFINE_string('topology', 'v5e 2x2', 'Chips, kind and shape.')

_WIDTHS = (256, 512, 1024, 2048, 4096, 8192)
_MODEL_DIM = 4096
_HEAD_DIM = 256
_ROTARY_HALF = 32
# Lengths whose chunks have 128, 256, 384 and 512 tokens, more than one each.
_LENGTHS = (640, 1280, 1152, 1024)


def main(argv: Sequence[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments {argv[1:]}.')
  with tempfile.TemporaryDirectory() as folder:
    # libtpu reads it once, as it is loaded.
    os.environ['LIBTPU_INIT_ARGS'] = (
      f'--xla_jf_dump_to={folder} --xla_jf_dump_llo_text=true'
    )
    setup.prepare()
    codes = dict(_count(pathlib.Path(folder)))
  record = {
    'compiler': compiler.version(),
    'topology': _TOPOLOGY.value,
    'kernels': codes,
  }
  unfinished = _OUT.value + '.unfinished'
  with open(unfinished, 'w') as f:
    f.write(json.dumps(record, indent=1, sort_keys=True) + '\n')
  os.replace(unfinished, _OUT.value)
  print(f'wrote {_OUT.value}')


def _count(folder: pathlib.Path) -> Iterator[tuple[str, dict[str, int]]]:
  """Key and bundles of each kernel, by its dump in a folder."""
  chip = topologies.find(_TOPOLOGY.value.replace(' ', '_')).describe()[0]
  place = jax.sharding.SingleDeviceSharding(chip)
  for function, shapes in _calls():
    structs = [jax.ShapeDtypeStruct(*s, sharding=place) for s in shapes]
    compiled = jax.jit(function).lower(*structs).compile()
    name, key = _called(compiled.as_text())
    outside, step, inner = (*bundles.read(folder)[name].depths, 0, 0)[:3]
    print(f'{key}: {outside} + {step} a step + {inner} a trip', flush=True)
    yield key, {'outside': outside, 'step': step, 'inner': inner}
    for path in folder.iterdir():
      path.unlink()


def _calls() -> Iterator[tuple]:
  """Functions that call one kernel each, and shapes of their arguments."""
  norm = ((_MODEL_DIM,), jnp.float32)
  for width in _WIDTHS:
    yield rows.quantize, [((4 * kernels.ROWS, width), jnp.bfloat16)]
  # What decode attention gives.
  for width in _WIDTHS[:-1]:
    yield rows.quantize, [((4 * kernels.ROWS, width), jnp.float32)]
  yield (
    functools.partial(rows.normalize, epsilon=1e-5),
    [((4 * kernels.ROWS, _MODEL_DIM), jnp.float32), norm, norm],
  )
  for kv_dtype in ('int8', 'bfloat16'):
    for length in _LENGTHS:
      angles = np.zeros((length, _ROTARY_HALF), np.float32)
      attend = functools.partial(
        prefill_attention.attend,
        sin=angles,
        cos=angles,
        head_dim=_HEAD_DIM,
        kv_dtype=kv_dtype,
      )
      yield attend, [((1, length, 3 * _HEAD_DIM), jnp.bfloat16)]


def _called(text: str) -> tuple[str, str]:
  """The one kernel that a program calls: its name, and the key of its code."""
  calls = []

  def seen(i: hlo_text.Instruction, within: hlo_text.Computation, _) -> None:
    work = kernels.work_of(i, within)
    if work is not None:
      calls.append((hlo_text.kernel_name(i), work.key))

  hlo_costs.read(text, describe=seen)
  (call,) = calls
  return call


if __name__ == '__main__':
  flags.mark_flag_as_required(_OUT)
  app.run(main)
