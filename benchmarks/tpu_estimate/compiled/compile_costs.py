"""Compiles the programs of a configuration for a TPU, and stores their costs.

This needs libtpu, but no TPU. The report reads the output. docs/aot_report.md
has the commands that produce the files in `data/`.
"""

from collections.abc import Sequence
import dataclasses
import pathlib
import time

from absl import app
from absl import flags

from benchmarks.tpu_estimate.compiled import costs
from benchmarks.tpu_estimate.compiled import engine_programs
from benchmarks.tpu_estimate.compiled import hlo_costs
from saxml_ext.aot import compile_set
from saxml_ext.aot.tpu import topologies
from saxml_ext.common import files
from saxml_ext.common import flag_rules
from saxml_ext.common import program as program_lib
from saxml_ext.common import user_path
from saxml_ext.engine import config as config_lib

_OUT = flags.DEFINE_list('out', None, 'The output file (files with --again).')
_AGAIN = flags.DEFINE_bool(
  'again',
  False,
  'Compile the programs in the files of --out again, and overwrite them.',
)
_TITLE = flags.DEFINE_string('title', 'GPT-J 6B', 'The name of the set.')
_TOPOLOGY = flags.DEFINE_string('topology', 'v5e 2x2', 'The TPU slice.')
_MESH = flags.DEFINE_list('mesh', ['1', '1', '4'], 'Axes: replica,data,model.')
_WEIGHTS = flags.DEFINE_enum(
  'weights', 'int8', ['bfloat16', 'int8', 'int8_weights'], 'Matrix format.'
)
_KV = flags.DEFINE_enum(
  'kv', 'int8', config_lib.KV_DTYPES, 'The number format of keys and values.'
)
_SLOTS = flags.DEFINE_integer('slots', 64, 'The number of decode slots.')
_BUCKETS = flags.DEFINE_list(
  'buckets', ['512', '1024', '1536', '1919'], 'The lengths of prompts.'
)
_ROWS = flags.DEFINE_list(
  'rows',
  ['1'],
  'The numbers of prompts that each part of the slots prefills together.',
)
_STATIC = flags.DEFINE_bool(
  'static',
  False,
  'Use batches that start and end together, like Sax. Answers then begin with'
  ' an empty cache, which needs no room for older ones.',
)
_LAYERS = flags.DEFINE_integer('layers', 28, 'The number of layers.')
_PARAMS = flags.DEFINE_string(
  'params',
  None,
  'The serving params to compile decode and all prefills of, instead of GPT-J.',
)
flag_rules.act_only(
  'without --again', lambda: not _AGAIN.value, 'title topology params'
)
flag_rules.act_only(
  'without --again and --params',
  lambda: not (_AGAIN.value or _PARAMS.value),
  'mesh weights kv slots buckets rows static layers',
)


def main(argv: Sequence[str]) -> None:
  del argv
  paths = [pathlib.Path(user_path.resolve(path)) for path in _OUT.value]
  if len(paths) > 1 and not _AGAIN.value:
    raise app.UsageError(
      f'--out has {len(paths)} files, but must have one without --again.'
    )
  topologies.prepare()
  for path in paths:
    try:
      described = _described(path)
      text = costs.write(_compiled(described))
    except (OSError, ValueError, RuntimeError) as e:
      raise SystemExit(f'compile_costs: {path}: {e}') from e
    with files.replacing(path) as file:
      file.write(text)
    print(f'wrote {path}', flush=True)


def _described(path: pathlib.Path) -> costs.Set:
  """Returns the set to compile. Its programs have no costs yet."""
  if _AGAIN.value:
    return costs.read(path)
  if _PARAMS.value:
    return engine_programs.from_params(
      _PARAMS.value, _TITLE.value, _TOPOLOGY.value
    )
  replica, data, model = map(int, _MESH.value)
  keys = [f'decode {_SLOTS.value}']
  for rows in _ROWS.value:
    for length in _BUCKETS.value:
      keys.append(f'prefill_and_insert {int(rows) * replica * data} 0 {length}')
  return costs.Set(
    title=_TITLE.value,
    topology=_TOPOLOGY.value,
    slots=_SLOTS.value,
    beams=4,
    kv=_KV.value,
    weights=_WEIGHTS.value,
    # These are the sizes of GPT-J 6B in MLPerf. The vocabulary has one padding
    # token.
    model=dict(
      num_layers=_LAYERS.value,
      model_dim=4096,
      num_heads=16,
      head_dim=256,
      hidden_dim=16384,
      rotary_dim=64,
      vocab_size=50401,
    ),
    compiler='',
    programs=dict.fromkeys(keys, costs.UNKNOWN),
    mesh=(replica, data, model),
    static=_STATIC.value,
  )


def _compiled(described: costs.Set) -> costs.Set:
  """Returns the set with the costs of its programs.

  Raises:
    RuntimeError: libtpu is unusable, or a program does not compile.
    ValueError: The mesh does not divide the model.
  """
  topology = topologies.find(described.topology)
  run = engine_programs.build(described, topology.describe())
  programs = {}
  for key in run.keys():
    if str(key) in described.programs:
      began = time.monotonic()
      compiled = run.lower(key).compile()
      memory = dataclasses.asdict(compile_set.memory(compiled))
      programs[str(key)] = dataclasses.replace(
        hlo_costs.read(compiled.as_text(), memory),
        lowered=engine_programs.fingerprint(described, str(key)),
      )
      seconds = time.monotonic() - began
      gib = memory['peak'] / 2**30
      print(f'{key}: {seconds:.0f} s, {gib:.2f} GiB per chip', flush=True)
  return dataclasses.replace(
    described, compiler=topologies.compiler(), programs=programs
  )


if __name__ == '__main__':
  flags.mark_flag_as_required('out')
  program_lib.run(main)
