"""Compiles the programs that serving params need into a program set.

  compile_programs --params=saxml_ext.params.gptj.TinyTokenizedFP32
      --checkpoint=DIR --out=SET

It compiles for the devices of the machine on which it runs, like the model
server. It reads only the sizes and types of the checkpoint's weights. See
docs/programs.md.
"""

from collections.abc import Sequence
import sys

from absl import flags
import jax

from saxml_ext.aot import compile_set
from saxml_ext.aot import program_set
from saxml_ext.common import errors
from saxml_ext.common import program
from saxml_ext.common import user_path
from saxml_ext.params import all_params  # noqa: F401 Registers them.
from saxml_ext.params import overrides
from saxml_ext.params import registry
from saxml_ext.server import jax_setup
from saxml_ext.server.lifecycle import entry as entry_lib
from saxml_ext.server.loading import loader
from saxml_ext.server.loading import random_model

_PARAMS = flags.DEFINE_string(
  'params', None, 'The name of the serving params.', required=True
)
_CHECKPOINT = flags.DEFINE_string(
  'checkpoint',
  None,
  'A PAX checkpoint, or None for the random weights of test params.',
  required=True,
)
_OVERRIDE = flags.DEFINE_multi_string(
  'override', [], 'An override, as ATTRIBUTE=JSON. Repeatable.'
)
_OUT = flags.DEFINE_string(
  'out', None, 'The new or empty output directory.', required=True
)
_STABLEHLO = flags.DEFINE_bool(
  'stablehlo',
  True,
  'Also write the programs as StableHLO, which servers with other versions of'
  ' JAX can compile.',
)


def _checkpoint_path() -> str:
  path = _CHECKPOINT.value
  return path if random_model.is_meant(path) else user_path.resolve(path)


def main(argv: Sequence[str]) -> None:
  del argv
  jax_setup.configure(cache_dir=None)
  out = user_path.resolve(_OUT.value)
  try:
    program_set.check_place(out)
    changes = overrides.from_flags(
      registry.lookup(_PARAMS.value), _OVERRIDE.value
    )
    made = loader.plan(
      entry_lib.Spec(
        model_path=_PARAMS.value,
        checkpoint_path=_checkpoint_path(),
        overrides=changes,
        acls={},
      )
    )
    run = made.executables()
    compile_set.compile_set(
      out,
      run,
      run.keys(),
      made.serving,
      stablehlo=_STABLEHLO.value,
      progress=lambda line: print(line, flush=True),
    )
  except (errors.SaxError, OSError, jax.errors.JaxRuntimeError) as e:
    sys.exit(f'compile_programs: {e}')


if __name__ == '__main__':
  program.run(main)
