"""Lists the benchmarks and finds one by name.

Modules in the directory $HARNESS_BENCHMARKS add benchmarks. Each module defines
BENCHMARKS, a tuple of `benchmark.Benchmark`.
"""

from collections.abc import Iterator
import os
import pathlib
import runpy
import sys

from harness.benchmarks import benchmark
from harness.benchmarks import bert
from harness.benchmarks import gptj
from harness.benchmarks import llama
from harness.rules import rounds

DIRECTORY = 'HARNESS_BENCHMARKS'
_BUILT_IN = (gptj.GPTJ, bert.BERT, llama.LLAMA, llama.LLAMA_EDGE)


def load(directory: str) -> Iterator[benchmark.Benchmark]:
  """Yields the benchmarks of all modules in a directory.

  Raises:
    ValueError: There is no such directory, or a module has no benchmarks or
      uses a name that is taken.
  """
  path = pathlib.Path(directory)
  if not path.is_dir():
    raise ValueError(
      f'{DIRECTORY}={directory} is not a directory. Set it to a directory of'
      ' modules that define BENCHMARKS, or unset it.'
    )
  names = {name for value in _BUILT_IN for name in (value.name, *value.models)}
  for module in sorted(path.glob('*.py')):
    try:
      added = runpy.run_path(str(module))['BENCHMARKS']
      for value in added:
        if not isinstance(value, benchmark.Benchmark):
          raise TypeError(f'{value!r} is not a benchmark.Benchmark')
        if taken := names & {value.name, *value.models}:
          raise ValueError(f'{", ".join(taken)} already exists')
        names |= {value.name, *value.models}
        yield value
    except Exception as error:
      raise ValueError(
        f'{DIRECTORY}: {module} cannot be used ({error!r}). It must define'
        ' BENCHMARKS, a tuple of benchmark.Benchmark with new names.'
      ) from error


def _all() -> Iterator[benchmark.Benchmark]:
  yield from _BUILT_IN
  if directory := os.environ.get(DIRECTORY):
    try:
      yield from load(directory)
    except ValueError as error:  # Flags list the names, so it is too early for
      sys.exit(str(error))  # the error handling of programs.


# The benchmarks by name, and the benchmark of each submitted model.
BENCHMARKS = {value.name: value for value in _all()}
MODELS = {name: value for value in BENCHMARKS.values() for name in value.models}
# The default of the flags --model and --benchmark.
DEFAULT = gptj.GPTJ


def families() -> set[str]:
  """Returns the model types of the benchmarks that summarize news."""
  return {value.family for value in BENCHMARKS.values() if value.summarizes}


def ended(form: str) -> str:
  """Returns a text for each benchmark that the latest round does not have."""
  return ''.join(
    form.format(value)
    for value in BENCHMARKS.values()
    if value.last_round != rounds.LATEST
  )


def get(name: str) -> benchmark.Benchmark:
  """Returns the benchmark of a name.

  Raises:
    ValueError: No benchmark has the name.
  """
  if name not in BENCHMARKS:
    raise ValueError(
      f'There is no benchmark {name!r}. Available: {", ".join(BENCHMARKS)}.'
    )
  return BENCHMARKS[name]
