"""Compiles a configuration's programs for a TPU and keeps what they cost.

Needs libtpu, but no TPU. The report reads the file that this writes; the ones
in `data/` are made by the commands that docs/aot_report.md names.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import functools
import os
import pathlib
import time

from absl import app
from absl import flags
import jax

from saxml_ext.aot.report.compiled import bundles
from saxml_ext.aot.report.compiled import compiler
from saxml_ext.aot.report.compiled import costs
from saxml_ext.aot.report.compiled import hlo_costs
from saxml_ext.aot.report.compiled import kernels as kernels_lib
from saxml_ext.aot.tpu import setup
from saxml_ext.aot.tpu import topologies
from saxml_ext.engine import abstract_weights
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import executables
from saxml_ext.engine import sharding
from saxml_ext.engine import state

_OUT = flags.DEFINE_string('out', None, 'File to write.')
_TITLE = flags.DEFINE_string('title', 'GPT-J 6B', 'What it is, in words.')
_TOPOLOGY = flags.DEFINE_string('topology', 'v5e 2x2', 'Chips, kind and shape.')
_MESH = flags.DEFINE_list('mesh', ['1', '1', '4'], 'Replica, data, model.')
_WEIGHTS = flags.DEFINE_enum(
  'weights', 'int8', ['bfloat16', 'int8', 'int8_weights'], 'Of the matrices.'
)
_KV = flags.DEFINE_enum(
  'kv', 'int8', config_lib.KV_DTYPES, 'Number format of keys and values.'
)
_SLOTS = flags.DEFINE_integer('slots', 64, 'Requests decoded together.')
_BUCKETS = flags.DEFINE_list(
  'buckets', ['512', '1024', '1536', '1919'], 'Lengths of prompts.'
)
_ROWS = flags.DEFINE_list(
  'rows',
  ['1'],
  'Prompts prefilled together, by each part of the slots that the mesh makes.',
)
_STATIC = flags.DEFINE_bool(
  'static',
  False,
  'Batches that start and end together, as Sax has them: answers begin with an'
  ' empty cache, which needs no room for older ones.',
)
_BUNDLES = flags.DEFINE_string(
  'bundles',
  None,
  "Directory where the compiler has dumped the attention kernel's code, see"
  ' docs/aot_report.md. Without it the bytes that it reads are all that counts.',
)
_LAYERS = flags.DEFINE_integer('layers', 28, 'Layers of the model.')


class _Static(config_lib.EngineConfig):
  """All slots begin together: one suffix block holds whole answers."""

  @property
  def num_suffix_blocks(self) -> int:
    return 1


def main(argv: Sequence[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments {argv[1:]}.')
  setup.prepare()
  kernels: Mapping[str, bundles.Kernel] = {}
  try:
    run, keys = _executables()
    if _BUNDLES.value:
      kernels = bundles.read(pathlib.Path(_BUNDLES.value))
  except (ValueError, RuntimeError) as e:
    raise SystemExit(f'compile_costs: {e}') from e
  programs = {}
  for key in keys:
    began = time.monotonic()
    try:
      compiled = run.lower(key).compile()
    except jax.errors.JaxRuntimeError as e:
      raise SystemExit(
        f'compile_costs: {key} does not compile for {_TOPOLOGY.value}: {e}'
      ) from e
    programs[str(key)] = program(compiled, kernels)
    seconds = time.monotonic() - began
    gib = programs[str(key)].memory['peak'] / 2**30
    print(f'{key}: {seconds:.0f} s, {gib:.2f} GiB per chip', flush=True)
  made = costs.Set(
    title=_TITLE.value,
    topology=_TOPOLOGY.value,
    slots=_SLOTS.value,
    beams=4,
    kv=_KV.value,
    weights=_WEIGHTS.value,
    model=dataclasses.asdict(_model()),
    compiler=compiler.version(),
    programs=programs,
    parts=sharding.slot_parts(run.mesh),
  )
  unfinished = _OUT.value + '.unfinished'
  with open(unfinished, 'w') as f:
    f.write(costs.write(made))
  os.replace(unfinished, _OUT.value)
  print(f'wrote {_OUT.value}')


def program(
  compiled: jax.stages.Compiled, kernels: Mapping[str, bundles.Kernel]
) -> costs.Program:
  """Costs of a compiled program; `kernels` as of `bundles.read`."""
  m = compiled.memory_analysis()
  memory = {
    'peak': m.peak_memory_in_bytes,
    'arguments': m.argument_size_in_bytes,
    'temporaries': m.temp_size_in_bytes,
    'outputs': m.output_size_in_bytes,
    'aliased': m.alias_size_in_bytes,
    'code': m.generated_code_size_in_bytes,
  }
  describe = functools.partial(kernels_lib.describe, kernels)
  return hlo_costs.read(compiled.as_text(), memory, describe)


def _model() -> config_lib.ModelConfig:
  """GPT-J 6B as in MLPerf; its vocabulary has one token of padding."""
  return config_lib.ModelConfig(
    num_layers=_LAYERS.value,
    model_dim=4096,
    num_heads=16,
    head_dim=256,
    hidden_dim=16384,
    rotary_dim=64,
    vocab_size=50401,
  )


def _executables() -> tuple[executables.Executables, list[executables.Key]]:
  buckets = tuple(map(int, _BUCKETS.value))
  rows = tuple(map(int, _ROWS.value))
  kind = _Static if _STATIC.value else config_lib.EngineConfig
  engine = config_lib.tiled(
    kind(
      eos_id=50256,
      num_slots=_SLOTS.value,
      max_prompt=buckets[-1],
      prompt_buckets=buckets,
      prefill_batches=rows,
      kv_dtype=_KV.value,
    )
  )
  if _STATIC.value:
    engine = dataclasses.replace(engine, suffix_block=engine.max_new_tokens)
  mesh = sharding.make_mesh(
    tuple(map(int, _MESH.value)),
    topologies.find(_TOPOLOGY.value.replace(' ', '_')).describe(),
  )
  model = _model()
  sharding.check(mesh, model, engine.num_slots)
  numbers = None if _WEIGHTS.value == 'bfloat16' else _WEIGHTS.value
  weights = abstract_weights.stacked(model, 'bfloat16', numbers)
  weights = jax.eval_shape(lambda w: sharding.pad(mesh, w), weights)
  parts = sharding.slot_parts(mesh)
  keys: list[executables.Key] = [
    executables.PrefillAndInsert(n * parts, 0, bucket)
    for n in rows
    for bucket in buckets
  ]
  return (
    executables.Executables(state.Settings(model, engine), weights, mesh),
    [executables.Decode(_SLOTS.value), *keys],
  )


if __name__ == '__main__':
  flags.mark_flag_as_required(_OUT)
  app.run(main)
