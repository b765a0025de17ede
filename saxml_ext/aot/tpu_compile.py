"""Compiles the engine's programs for a Cloud TPU that is not there.

XLA's TPU compiler (libtpu) needs no TPU: it says whether a program compiles,
whether it fits the chips' memory, and which collectives it runs. Prints one row
per program of GPT-J 6B; fails where XLA does.
"""

import collections
from collections.abc import Sequence
import os
import re
import time

# Read by libtpu as it is loaded: no metadata server is asked, no lock file and
# no logs are written.
for _name, _value in {
  'TPU_SKIP_MDS_QUERY': '1',
  'TPU_WORKER_HOSTNAMES': 'localhost',
  'TPU_ACCELERATOR_TYPE': 'v5litepod-4',
  'ALLOW_MULTIPLE_LIBTPU_LOAD': '1',
  'TPU_LOG_DIR': 'disabled',
  'JAX_PLATFORMS': 'cpu',
}.items():
  os.environ.setdefault(_name, _value)

from absl import app
from absl import flags
import jax
from jax.experimental import topologies

from saxml_ext.engine import abstract_weights
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import executables
from saxml_ext.engine import sharding
from saxml_ext.engine import state

_TOPOLOGY = flags.DEFINE_string('topology', 'v5e:2x2', "libtpu's name for it.")
_MESH = flags.DEFINE_list('mesh', ['1', '1', '4'], 'Replica, data, model.')
_NUMBERS = flags.DEFINE_list(
  'numbers', ['bfloat16', 'int8'], 'Number formats of the matrices.'
)
_KV = flags.DEFINE_enum(
  'kv', 'bfloat16', config_lib.KV_DTYPES, 'Number format of the KV cache.'
)
_SLOTS = flags.DEFINE_integer('slots', 32, 'Requests decoded together.')
_BUCKETS = flags.DEFINE_list(
  'buckets',
  ['512', '1024', '1919'],
  'Lengths of prompts; prefill is compiled for the first, decode for them all.',
)
_BATCH = flags.DEFINE_integer('batch', 1, 'Prompts prefilled together.')
_LAYERS = flags.DEFINE_integer('layers', 28, 'Layers of the model.')
_PROGRAMS = flags.DEFINE_multi_enum(
  'programs', ['prefill', 'decode'], ['prefill', 'decode'], 'What to compile.'
)
_DUMP = flags.DEFINE_string('dump', None, 'Directory for the compiled HLO.')

_COLLECTIVE = re.compile(
  r' = (.*?) (all-reduce|all-gather|reduce-scatter|all-to-all|'
  r'collective-permute)(?:-start)?\('
)


def _model() -> config_lib.GPTJConfig:
  """GPT-J 6B as in MLPerf; its vocabulary has one token of padding."""
  return config_lib.GPTJConfig(
    num_layers=_LAYERS.value,
    model_dim=4096,
    num_heads=16,
    head_dim=256,
    hidden_dim=16384,
    rotary_dim=64,
    vocab_size=50401,
  )


def _executables(numbers: str) -> executables.Executables:
  buckets = tuple(map(int, _BUCKETS.value))
  engine = config_lib.EngineConfig(
    eos_id=50256,
    num_slots=_SLOTS.value,
    max_prompt=buckets[-1],
    prompt_buckets=buckets,
    prefill_batches=(_BATCH.value,),
    kv_dtype=_KV.value,
  )
  shape = tuple(map(int, _MESH.value))
  topology = topologies.get_topology_desc(
    platform='tpu', topology_name=_TOPOLOGY.value
  )
  mesh = sharding.make_mesh(shape, topology.devices)
  model = _model()
  sharding.check(mesh, model, engine.num_slots)
  weights = abstract_weights.stacked(
    model, 'bfloat16', None if numbers == 'bfloat16' else numbers
  )
  weights = jax.eval_shape(lambda w: sharding.pad(mesh, w), weights)
  return executables.Executables(
    state.Settings(model, config_lib.tiled(engine)), weights, mesh
  )


def _row(title: str, run: executables.Executables, key: executables.Key) -> str:
  """Compiles one program and describes it."""
  began = time.monotonic()
  compiled = run.lower(key).compile()
  seconds = time.monotonic() - began
  memory = compiled.memory_analysis()
  text = compiled.as_text()
  if _DUMP.value:
    path = os.path.join(_DUMP.value, title.replace(' ', '_') + '.hlo')
    with open(path, 'w') as f:
      f.write(text)
  sizes = (
    memory.peak_memory_in_bytes,
    memory.argument_size_in_bytes,
    memory.temp_size_in_bytes,
    memory.output_size_in_bytes,
    memory.alias_size_in_bytes,
    memory.generated_code_size_in_bytes,
  )
  gib = ' '.join(f'{size / 2**30:8.3f}' for size in sizes)
  kinds = collections.Counter(m[2] for m in _COLLECTIVE.finditer(text))
  counts = ', '.join(f'{n} {kind}' for kind, n in sorted(kinds.items()))
  return f'{seconds:9.1f} {gib}  {counts}'


def main(argv: Sequence[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments {argv[1:]}.')
  print(f'{_LAYERS.value} layers, {_SLOTS.value} slots; GiB per chip')
  names = ('peak', 'args', 'temp', 'out', 'alias', 'code')
  columns = ' '.join(f'{name:>8}' for name in names)
  print(f'{"program":40} compile s {columns}  collectives in the program')
  for numbers in _NUMBERS.value:
    run = _executables(numbers)
    for name in _PROGRAMS.value:
      key: executables.Key = executables.Decode(_SLOTS.value)
      if name == 'prefill':
        key = executables.PrefillAndInsert(
          _BATCH.value, 0, int(_BUCKETS.value[0])
        )
      title = f'{numbers} {key}'
      print(f'{title:40}', _row(title, run, key), flush=True)


if __name__ == '__main__':
  app.run(main)
