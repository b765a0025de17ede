"""Counts the bundles of the engine's kernels.

The program compiles each kernel alone for a TPU, with the sizes of GPT-J's
programs on 1 to 16 chips, and of Llama 3.1 8B on 1 and 4. Then it reads the
code that libtpu dumps. This needs libtpu, but no TPU, and takes minutes.
`kernel_costs.py` reads the output.
"""

from collections.abc import Iterator, Sequence
import dataclasses
import functools
import os
import pathlib
import tempfile

from absl import flags
import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.tpu_estimate.compiled import bundles
from benchmarks.tpu_estimate.compiled import hlo_costs
from benchmarks.tpu_estimate.compiled import hlo_text
from benchmarks.tpu_estimate.compiled import kernel_costs
from saxml_ext.aot.tpu import topologies
from saxml_ext.common import files
from saxml_ext.common import program
from saxml_ext.engine import sharding
from saxml_ext.engine.kernels.tpu import block_list as work_lib
from saxml_ext.engine.kernels.tpu import decode_kernel
from saxml_ext.engine.kernels.tpu import prefill_attention
from saxml_ext.engine.kernels.tpu import rows

_OUT = flags.DEFINE_string('out', None, 'The output file.')
_TOPOLOGY = flags.DEFINE_string('topology', 'v5e 2x2', 'The TPU slice.')

_WIDTHS = (256, 512, 1024, 2048, 3584, 4096, 8192)
_MODEL_DIM = 4096
_HEAD_DIM = 256
_ROTARY_HALF = 32
# These lengths have chunks of 128, 256, 384 and 512 tokens, and several chunks
# each.
_LENGTHS = (640, 1280, 1152, 1024)
# Decode attention: the heads of keys per chip (of 4 chips, or of one), their
# width and the number format. The code does not depend on the number of slots
# and keys.
_DECODE = (
  (4, _HEAD_DIM, 'int8'),
  (16, _HEAD_DIM, 'int8'),
  (4, _HEAD_DIM, 'bfloat16'),
  (2, 128, 'int8'),
  (8, 128, 'int8'),
)
# The beams of GPT-J, and the queries that share a key in Llama.
_SLOTS, _BEAMS, _PROMPT, _SUFFIX = 8, 4, 1920, 512


def main(argv: Sequence[str]) -> None:
  del argv
  with tempfile.TemporaryDirectory() as folder:
    # libtpu reads this variable only once, when it is loaded.
    os.environ['LIBTPU_INIT_ARGS'] = (
      f'--xla_jf_dump_to={folder} --xla_jf_dump_llo_text=true'
    )
    topologies.prepare()
    codes = dict(_count(pathlib.Path(folder)))
  record = {
    'compiler': topologies.compiler(),
    'topology': _TOPOLOGY.value,
    'kernels': codes,
  }
  files.write_json(_OUT.value, record, indent=1, sort_keys=True)
  print(f'wrote {_OUT.value}')


def _count(folder: pathlib.Path) -> Iterator[tuple[str, dict[str, int]]]:
  """Yields the key and bundles of each kernel, from dumps in a folder."""
  chip = topologies.find(_TOPOLOGY.value).describe()[0]
  # Pallas reads the kind of the target chip from the mesh.
  mesh = sharding.make_mesh((1, 1, 1), [chip])
  replicated = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
  for function, shapes in _calls():
    structs = jax.tree.map(
      lambda s: jax.ShapeDtypeStruct(*s, sharding=replicated),
      shapes,
      is_leaf=lambda s: isinstance(s, tuple),
    )
    with jax.set_mesh(mesh):
      compiled = jax.jit(function).lower(*structs).compile()
    name, key = _called(compiled.as_text())
    code = bundles.read(folder)[name]
    bundle_counts = (*code.depths, 0, 0)[:3]
    if name == kernel_costs.ATTEND_BEAMS:
      bundle_counts = bundles.count_decode_attention(code)
    counts = kernel_costs.Code(*bundle_counts)
    print(
      f'{key}: {counts.outside} + {counts.step} a step + {counts.inner} a trip',
      flush=True,
    )
    yield key, dataclasses.asdict(counts)
    for path in folder.iterdir():
      path.unlink()


def _calls() -> Iterator[tuple]:
  """Yields functions that call one kernel each, and their arguments' shapes."""
  norm = ((_MODEL_DIM,), jnp.float32)
  count = 4 * kernel_costs.ROWS
  for width in _WIDTHS:
    yield rows.quantize, [((count, width), jnp.bfloat16)]
  # Decode attention outputs float32. Only a feed-forward layer is wider.
  for width in [w for w in _WIDTHS if w <= _MODEL_DIM]:
    yield rows.quantize, [((count, width), jnp.float32)]
  normalize = functools.partial(rows.normalize, epsilon=1e-5)
  for bias in (norm, None):  # Of GPT-J and of Llama.
    yield normalize, [((count, _MODEL_DIM), jnp.float32), norm, bias]
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
  for sizes in _DECODE:
    yield _decode_attention(*sizes)


def _decode_attention(heads: int, width: int, kv_dtype: str) -> tuple:
  """Returns a function that calls decode attention, and its argument shapes."""

  def parts(*dims: int) -> list[tuple]:
    values = ((1, _SLOTS, heads, *dims), jnp.dtype(kv_dtype))
    scales = ((1, _SLOTS, heads, max(dims)), jnp.dtype('float32'))
    return [values, scales] if kv_dtype == 'int8' else [values]

  key = heads * width * jnp.dtype(kv_dtype).itemsize
  blocks = work_lib.Blocks(kernel_costs.keys_per_block(key, _PROMPT))

  def attend(queries, lengths, visible, kv):
    slots = jnp.arange(_SLOTS, dtype=jnp.int32)
    work = work_lib.plan(lengths, visible, slots, _PROMPT, blocks)
    keys, values, *suffixes = map(tuple, kv)
    return decode_kernel.attend(
      queries,
      work,
      jnp.int32(0),
      decode_kernel.KV(keys, values),
      decode_kernel.KV(*suffixes),
      blocks,
    )

  suffix = parts(_SUFFIX, width)
  kv = [parts(width, _PROMPT), parts(_PROMPT, width), suffix, suffix]
  queries = ((_SLOTS, heads, _BEAMS, width), jnp.float32)
  visible = ((_SLOTS, _BEAMS, _SUFFIX), jnp.bool_)
  return attend, [queries, ((_SLOTS,), jnp.int32), visible, kv]


def _called(text: str) -> tuple[str, str]:
  """Returns the name and the key of the only kernel that a program calls."""
  calls = []

  def seen(i: hlo_text.Instruction, within: hlo_text.Computation, _) -> None:
    if (work := kernel_costs.work_of(i, within)) is not None:
      calls.append((work.key.split()[0], work.key))

  hlo_costs.read(text, describe=seen)
  (call,) = calls
  return call


if __name__ == '__main__':
  flags.mark_flag_as_required(_OUT)
  program.run(main)
