"""Loads a model like a model server and prints the time to its first token.

  first_token --params=saxml_ext.params.gptj.TinyTokenizedFP32
      --checkpoint=DIR [--programs=SET]

The seconds count from the start of the process, including Python's own start.
"""

from collections.abc import Sequence
import sys
import time

from absl import flags
import numpy as np
import psutil

from saxml_ext.common import errors
from saxml_ext.common import program
from saxml_ext.common import user_path
from saxml_ext.engine import executables
from saxml_ext.engine import request as request_lib
from saxml_ext.params import all_params  # noqa: F401 Registers them.
from saxml_ext.server import jax_setup
from saxml_ext.server.lifecycle import entry as entry_lib
from saxml_ext.server.loading import loader
from saxml_ext.server.programs import programs

_PARAMS = flags.DEFINE_string(
  'params', None, 'The name of the serving params.', required=True
)
_CHECKPOINT = flags.DEFINE_string(
  'checkpoint', None, 'The path of the PAX checkpoint.', required=True
)
_PROGRAMS = flags.DEFINE_list('programs', [], 'The program sets.')
_PROMPT = flags.DEFINE_integer(
  'prompt', 16, 'The number of tokens of the prompt.', lower_bound=1
)


def main(argv: Sequence[str]) -> None:
  del argv
  jax_setup.configure(cache_dir=None)
  paths = [user_path.resolve(path) for path in _PROGRAMS.value]
  checkpoint = user_path.resolve(_CHECKPOINT.value)
  _print_time('imports')
  with executables.counting_compilations() as compiled:
    try:
      runner = loader.prepare(
        entry_lib.Spec(_PARAMS.value, checkpoint, overrides={}, acls={}),
        programs.Programs.open(paths),
      ).start()
      _print_time('model')
      prompt = np.ones(_PROMPT.value, np.int32)
      request = request_lib.Request(
        prompt, max_new_tokens=1, min_new_tokens=0, seed=0
      )
      runner.check(request)
    except (errors.SaxError, ValueError) as e:
      sys.exit(f'first_token: {e}')
    runner.prefill_and_insert({0: request})
    while not runner.step():
      pass
  _print_time('first token')
  print(f'{len(compiled)} compilations')


def _print_time(stage: str) -> None:
  """Prints a finished stage, its time since the start, and the CPU time."""
  process = psutil.Process()
  wall = time.time() - process.create_time()
  cpu = sum(process.cpu_times()[:2])
  print(f'{stage:12} {wall:6.2f} s, {cpu:6.2f} CPU s', flush=True)


if __name__ == '__main__':
  program.run(main)
