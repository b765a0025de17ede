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
  names = {name for each in _BUILT_IN for name in (each.name, *each.models)}
  for module in sorted(path.glob('*.py')):
    try:
      added = runpy.run_path(str(module))['BENCHMARKS']
      for each in added:
        if not isinstance(each, benchmark.Benchmark):
          raise TypeError(f'{each!r} is not a benchmark.Benchmark')
        if taken := names & {each.name, *each.models}:
          raise ValueError(f'{", ".join(taken)} already exists')
        names |= {each.name, *each.models}
        yield each
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
BENCHMARKS = {each.name: each for each in _all()}
MODELS = {name: each for each in BENCHMARKS.values() for name in each.models}
# The default of the flags --model and --benchmark.
DEFAULT = gptj.GPTJ


def families() -> set[str]:
  """Returns the model types of the benchmarks that summarize news."""
  return {each.family for each in BENCHMARKS.values() if each.summarizes}


def ended(form: str) -> str:
  """Returns a text for each benchmark that the latest round does not have."""
  return ''.join(
    form.format(each)
    for each in BENCHMARKS.values()
    if each.last_round != rounds.LATEST
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
