"""Compiles the programs of an engine into a set.

Two sets of the same sources, flags and devices have the same bytes if each is
compiled by a process that compiles nothing else: XLA numbers the programs of a
process, and writes the number into them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
import contextlib
import time
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache

from saxml_ext.aot import configuration as configuration_lib
from saxml_ext.aot import manifest as manifest_lib
from saxml_ext.aot import program_set
from saxml_ext.aot import serialization
from saxml_ext.common import errors
from saxml_ext.engine import executables

# A program, and its files: content by path.
Built = tuple[manifest_lib.Program, dict[str, bytes]]
# More files of a compiled program: content by kind.
MoreFiles = Callable[[jax.stages.Compiled], Mapping[str, bytes]]
# Gets a set before it is written: its manifest and files, content by path. What
# it returns is written too; what it raises keeps the set from being written.
Finish = Callable[
  [manifest_lib.Manifest, Mapping[str, bytes]], Mapping[str, bytes]
]


def compile_set(
  path: str,
  run: executables.Executables,
  keys: Sequence[executables.Key],
  serving: manifest_lib.Serving,
  *,
  xla_flags: Mapping[str, str] | None = None,
  stablehlo: bool = True,
  finish: Finish = lambda *_: {},
  elsewhere: Callable[[executables.Key], Built] | None = None,
  jobs: int = 1,
  progress: Callable[[str], None] = lambda _: None,
) -> manifest_lib.Manifest:
  """Compiles programs and writes them as a set, whole or not at all.

  Args:
    path: The set's directory, empty or not there yet.
    run: The engine's programs. Shapes are enough for its weights, and a
      described topology for its devices.
    keys: The programs to compile; see `Executables.keys`.
    serving: The params that the engine was made from.
    xla_flags: The options for the compiler.
    stablehlo: True to keep the programs as StableHLO too.
    finish: Called before the set is written.
    elsewhere: Compiles a program as `build` does, in a process of its own; None
      compiles all here.
    jobs: The programs compiled at a time; more than 1 only elsewhere, for the
      sake of equal bytes.
    progress: Gets a line for each program.

  Returns:
    The manifest that was written.

  Raises:
    errors.ResourceExhausted: A program is too large for the devices' memory.
    errors.Internal: The compiler refuses a program for another reason.
    OSError: The set cannot be written.
    ValueError: A program cannot be kept; see `serialization.serialize`.
  """
  configuration = configuration_lib.of(run, serving)
  options = dict(xla_flags or {})
  build_one = elsewhere or (lambda key: build(run, key, options, stablehlo))
  began = time.monotonic()
  programs = []
  files: dict[str, bytes] = {}

  pool = futures.ThreadPoolExecutor(jobs)
  try:
    tasks = [pool.submit(build_one, key) for key in keys]
    for number, task in enumerate(futures.as_completed(tasks), 1):
      program, content = task.result()
      programs.append(program)
      files |= content
      progress(
        f'compiled {number} of {len(keys)}: {program.key}'
        f' ({time.monotonic() - began:.1f} s,'
        f' {program.files[manifest_lib.EXECUTABLE].bytes} bytes)'
      )
  finally:
    # Where a program cannot be compiled, the others are not begun any more.
    pool.shutdown(cancel_futures=True)
  manifest = manifest_lib.Manifest(
    format=manifest_lib.FORMAT,
    configuration=configuration,
    xla_flags=options,
    programs=tuple(sorted(programs, key=lambda p: p.key)),
  )
  program_set.write(path, manifest, {**files, **finish(manifest, files)})
  return manifest


def build(
  run: executables.Executables,
  key: executables.Key,
  options: Mapping[str, str],
  stablehlo: bool,
  more_files: MoreFiles = lambda _: {},
) -> Built:
  """Compiles a program and returns it with its files: content by path.

  Args:
    run: The engine's programs, as in `compile_set`.
    key: The key of the program.
    options: The options for the compiler.
    stablehlo: True to keep the program as StableHLO too.
    more_files: Returns more files to keep of the program: content by kind.

  Raises:
    errors.ResourceExhausted, errors.Internal, ValueError: As in `compile_set`.
  """
  paths = _configured('jax_traceback_in_locations_limit', 0)
  with paths, _without_cache():  # No path of a source file is in the programs.
    lowered = run.lower(key)
    try:
      compiled = lowered.compile(dict(options))
    except jax.errors.JaxRuntimeError as e:
      # The first paragraph says what is wrong; a list of buffers may follow.
      why = str(e).split('\n\n')[0]
      too_large = why.startswith('RESOURCE_EXHAUSTED')
      kind = errors.ResourceExhausted if too_large else errors.Internal
      raise kind(f'XLA does not compile {str(key)!r}: {why}') from e
    executable, dropped = serialization.serialize(compiled)
    if serialization.platform(run) == 'cpu':
      executable = serialization.sort_object_files(executable)
    contents = {manifest_lib.EXECUTABLE: executable}
    if stablehlo:
      contents[manifest_lib.STABLEHLO] = serialization.stablehlo(run, key)
  contents |= more_files(compiled)
  named = {
    kind: (f'{str(key).replace(" ", "_")}.{kind}', content)
    for kind, content in contents.items()
  }
  program = manifest_lib.Program(
    key=str(key),
    dropped=dropped,
    memory=memory(compiled),
    files={k: program_set.file_of(*each) for k, each in named.items()},
  )
  return program, dict(named.values())


def memory(compiled: jax.stages.Compiled) -> manifest_lib.Memory:
  """Returns what a program takes on each device, by its compiler."""
  told = compiled.memory_analysis()
  return manifest_lib.Memory(
    peak=told.peak_memory_in_bytes,
    arguments=told.argument_size_in_bytes,
    temporaries=told.temp_size_in_bytes,
    outputs=told.output_size_in_bytes,
    aliased=told.alias_size_in_bytes,
    code=told.generated_code_size_in_bytes,
  )


@contextlib.contextmanager
def _configured(name: str, value: Any) -> Iterator[None]:
  """Sets an option of JAX for a while."""
  before = getattr(jax.config, name)
  jax.config.update(name, value)
  try:
    yield
  finally:
    jax.config.update(name, before)


@contextlib.contextmanager
def _without_cache() -> Iterator[None]:
  """Keeps JAX from its cache of programs.

  XLA for CPU (jaxlib 0.10) serializes a program from there without all of its
  functions. JAX reads the setting again only after a reset.
  """
  try:
    with _configured('jax_enable_compilation_cache', False):
      compilation_cache.reset_cache()
      yield
  finally:
    compilation_cache.reset_cache()
