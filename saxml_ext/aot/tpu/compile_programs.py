"""Compiles a program set for TPU, on a machine that needs none.

  compile_programs --params=saxml_ext.params.gptj.GPTJTokenizedINT8V5E2x2
      --topology=v5e_2x2 --out=DIR

The set holds every program that a model server of these serving params calls;
what stands in it is said by manifest.json, and for people by summary.txt. A set
that does not fit the chips' memory is not written.
"""

from collections.abc import Mapping, Sequence
import gzip
import resource
import time

from absl import app
from absl import flags
import jax

from saxml_ext.aot import abstract_model
from saxml_ext.aot import compile_set
from saxml_ext.aot import manifest as manifest_lib
from saxml_ext.aot.tpu import fit
from saxml_ext.aot.tpu import setup
from saxml_ext.aot.tpu import summary
from saxml_ext.aot.tpu import topologies
from saxml_ext.common import errors
from saxml_ext.common import user_path
from saxml_ext.params import gptj  # noqa: F401 Registers or sets up.

_PARAMS = flags.DEFINE_string('params', None, 'Name of the serving params.')
_OVERRIDES = flags.DEFINE_multi_string(
  'override', [], 'ATTRIBUTE=JSON, as in a publish; may be repeated.'
)
_TOPOLOGY = flags.DEFINE_enum(
  'topology', None, list(topologies.BY_NAME), 'The slice to compile for.'
)
_OUT = flags.DEFINE_string(
  'out', None, 'Directory to write; empty or not there yet.'
)
_XLA_FLAGS = flags.DEFINE_enum(
  'xla_flags',
  'params',
  ['params', 'none'],
  "Options for XLA: the serving params' XLA_TPU_FLAGS, or none.",
)
_JOBS = flags.DEFINE_integer(
  'jobs', 2, 'Programs compiled at a time.', lower_bound=1
)


def main(argv: Sequence[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments {argv[1:]}.')
  try:
    _compile()
  except (errors.SaxError, OSError, RuntimeError) as e:
    raise SystemExit(f'compile_programs: {e}') from e


def _compile() -> None:
  setup.prepare()
  began = time.monotonic()
  topology = topologies.find(_TOPOLOGY.value)
  overrides = _overrides()
  model = abstract_model.of(_PARAMS.value, overrides, topology.describe())
  run = model.executables()
  written = ''

  def finish(
    manifest: manifest_lib.Manifest, files: Mapping[str, bytes]
  ) -> dict[str, bytes]:
    nonlocal written
    needs = fit.check(
      {p.key: p.memory for p in manifest.programs}, topology.chip.hbm
    )
    hlo = {
      p.key: gzip.decompress(
        files[p.files[manifest_lib.OPTIMIZED_HLO].path]
      ).decode()
      for p in manifest.programs
    }
    written = summary.text(manifest, topology, needs, hlo)
    return {summary.NAME: written.encode()}

  out = user_path.resolve(_OUT.value)
  compile_set.compile_set(
    out,
    run,
    run.keys(),
    manifest_lib.Serving(_PARAMS.value, overrides),
    xla_flags={} if _XLA_FLAGS.value == 'none' else model.xla_flags,
    more_files=_optimized_hlo,
    finish=finish,
    jobs=_JOBS.value,
    progress=lambda line: print(line, flush=True),
  )
  print(written)
  peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
  seconds = time.monotonic() - began
  print(f'{out}: {seconds:.0f} s, at most {peak:.1f} GiB of memory')


def _overrides() -> dict[str, str]:
  found = {}
  for each in _OVERRIDES.value:
    name, separator, value = each.partition('=')
    if not separator:
      raise errors.InvalidArgument(
        f'--override={each} has no "="; give ATTRIBUTE=JSON, such as'
        ' NUM_CACHE_SLOTS=64'
      )
    found[name] = value
  return found


def _optimized_hlo(compiled: jax.stages.Compiled) -> dict[str, bytes]:
  """What XLA made of a program, as text; the estimates of speed read it."""
  # Without a time in its header the same text gives the same bytes.
  text = gzip.compress(compiled.as_text().encode(), mtime=0)
  return {manifest_lib.OPTIMIZED_HLO: text}


if __name__ == '__main__':
  flags.mark_flags_as_required(['params', 'topology', 'out'])
  app.run(main)
