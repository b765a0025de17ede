"""Compiles a program set for TPU or GPU on a machine that has none.

  compile_programs --params=saxml_ext.params.gptj.GPTJTokenizedINT8V5E2x2
      --topology=v5e_2x2 --out=DIR
  compile_gpu_programs --params=saxml_ext.params.gptj.GPTJTokenizedINT8H100
      --topology=h100 --out=DIR

The set contains every program that a model server with these serving params
calls. manifest.json describes the set for programs, and summary.txt for people.
If the set does not fit the chips' memory, it is not written.
"""

from collections.abc import Mapping, Sequence
import gzip
import pathlib
import time

from absl import flags

from saxml_ext.aot import compile_set
from saxml_ext.aot import manifest as manifest_lib
from saxml_ext.aot.tpu import compile_worker
from saxml_ext.aot.tpu import summary
from saxml_ext.aot.tpu import topologies
from saxml_ext.common import errors
from saxml_ext.common import flag_rules
from saxml_ext.common import program
from saxml_ext.common import user_path
from saxml_ext.engine import executables
from saxml_ext.params import overrides
from saxml_ext.params import registry

_PARAMS = flags.DEFINE_string('params', None, 'The name of the serving params.')
_OVERRIDES = flags.DEFINE_multi_string(
  'override', [], 'An override, as ATTRIBUTE=JSON. Repeatable.'
)
_TOPOLOGY = flags.DEFINE_enum(
  'topology',
  None,
  [*topologies.BY_NAME, *topologies.GPUS],
  'The slice or GPU to compile for.',
)
_OUT = flags.DEFINE_string(
  'out', None, 'The output directory, which must be empty or not exist.'
)
_ONLY = flags.DEFINE_multi_string(
  'only',
  [],
  'Compile only programs whose keys begin with this text, such as "decode". A'
  ' server must compile the others. Repeatable.',
)
_XLA_FLAGS = flags.DEFINE_enum(
  'xla_flags',
  'none',
  ['none', 'params'],
  "The options for XLA: none, or the serving params' XLA_TPU_FLAGS.",
)
_JOBS = flags.DEFINE_integer(
  'jobs',
  2,
  'The number of programs compiled at a time, each in a process of about 1 GB.',
  lower_bound=1,
)
flag_rules.act_only(
  'with a TPU as --topology',
  lambda: _TOPOLOGY.value in topologies.BY_NAME,
  'xla_flags',
)


def main(argv: Sequence[str]) -> None:
  del argv
  kinds = (errors.SaxError, OSError, RuntimeError)
  with program.exit_on('compile_programs', kinds):
    _compile()


def _compile() -> None:
  began = time.monotonic()
  out = user_path.resolve(_OUT.value)
  changes = overrides.from_flags(
    registry.lookup(_PARAMS.value), _OVERRIDES.value
  )
  task = compile_worker.Task(
    _PARAMS.value, changes, _TOPOLOGY.value, _XLA_FLAGS.value == 'params'
  )
  model = task.model()
  run = model.executables()
  peaks: list[int] = []

  def elsewhere(key: executables.Key) -> compile_set.Built:
    built, peak = compile_worker.compile_program(task, str(key))
    peaks.append(peak)
    return built

  compile_set.compile_set(
    out,
    run,
    _keys(run),
    manifest_lib.Serving(task.params, task.overrides),
    xla_flags=task.xla_flags(model),
    finish=lambda *made: {summary.NAME: _summary(*made).encode()},
    elsewhere=elsewhere,
    jobs=_JOBS.value,
    progress=lambda line: print(line, flush=True),
  )
  print('\n' + pathlib.Path(out, summary.NAME).read_text('utf-8'))
  print(
    f'{out}: {time.monotonic() - began:.0f} s, at most'
    f' {max(peaks) / 1e9:.1f} GB of memory in one of {_JOBS.value} processes'
  )


def _keys(run: executables.Executables) -> list[executables.Key]:
  """Returns the keys of the requested programs.

  Raises:
    errors.InvalidArgument: No program matches the flags.
  """
  begins = tuple(_ONLY.value) or ''
  keys = [key for key in run.keys() if str(key).startswith(begins)]
  if not keys:
    names = ', '.join(map(str, run.keys()))
    raise errors.InvalidArgument(
      f'--only={_ONLY.value} matches no program. Available: {names}'
    )
  return keys


def _summary(
  manifest: manifest_lib.Manifest, files: Mapping[str, bytes]
) -> str:
  """Returns the summary of a set.

  Raises:
    errors.ResourceExhausted: The set does not fit the chips' memory.
  """
  topology = topologies.find(_TOPOLOGY.value)
  memory = {p.key: p.memory for p in manifest.programs}
  needs = summary.check(memory, topology.chip.hbm)
  packed = {
    p.key: files[p.files[manifest_lib.OPTIMIZED_HLO].path]
    for p in manifest.programs
  }
  hlo = {key: gzip.decompress(x).decode() for key, x in packed.items()}
  return summary.text(manifest, topology, needs, hlo)


if __name__ == '__main__':
  flags.mark_flags_as_required(['params', 'topology', 'out'])
  program.run(main)
