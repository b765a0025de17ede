"""Compiles the programs of an engine into a set."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
import contextlib
import time

import jax

from saxml_ext.aot import configuration
from saxml_ext.aot import exporting
from saxml_ext.aot import manifest as manifest_lib
from saxml_ext.aot import program_set
from saxml_ext.aot import serialization
from saxml_ext.engine import executables

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
  more_files: MoreFiles = lambda _: {},
  finish: Finish = lambda *_: {},
  jobs: int = 1,
  progress: Callable[[str], None] = lambda _: None,
) -> manifest_lib.Manifest:
  """Compiles programs and writes them as a set, whole or not at all.

  Args:
    path: the set's directory, empty or not there yet.
    run: of the engine. Shapes will do for its weights, and a described topology
      for its devices.
    keys: which programs, see `Executables.keys`.
    serving: the params that the engine was made from.
    xla_flags: options for the compiler.
    stablehlo: whether the programs are kept as StableHLO too.
    more_files: gives more to keep of each program.
    finish: the last word before the set is written.
    jobs: programs compiled at a time.
    progress: gets a line for each program.

  Returns:
    What was written.

  Raises:
    jax.errors.JaxRuntimeError: the compiler refuses a program, for example as
      too large for the devices' memory.
    OSError: the set cannot be written.
  """
  options = dict(xla_flags or {})
  began = time.monotonic()
  programs = []
  files: dict[str, bytes] = {}

  def build(key: executables.Key) -> tuple[manifest_lib.Program, dict]:
    return _build(run, key, options, stablehlo, more_files)

  with _without_source_paths(), futures.ThreadPoolExecutor(jobs) as pool:
    for number, built in enumerate(pool.map(build, keys), 1):
      program, content = built
      programs.append(program)
      files |= content
      progress(
        f'compiled {number} of {len(keys)}: {program.key}'
        f' ({time.monotonic() - began:.1f} s,'
        f' {program.files[manifest_lib.EXECUTABLE].bytes} bytes)'
      )
  manifest = manifest_lib.Manifest(
    format=manifest_lib.FORMAT,
    configuration=configuration.of(run, serving),
    xla_flags=dict(xla_flags or {}),
    programs=tuple(sorted(programs, key=lambda p: p.key)),
  )
  program_set.write(path, manifest, {**files, **finish(manifest, files)})
  return manifest


def _build(
  run: executables.Executables,
  key: executables.Key,
  options: dict[str, str],
  stablehlo: bool,
  more_files: MoreFiles,
) -> tuple[manifest_lib.Program, dict[str, bytes]]:
  """A compiled program, and its files: content by path."""
  compiled = run.lower(key).compile(options)
  serialized = serialization.serialize(compiled)
  contents = {manifest_lib.EXECUTABLE: serialized.executable}
  if stablehlo:
    contents[manifest_lib.STABLEHLO] = exporting.stablehlo(run, key)
  contents |= more_files(compiled)
  named = {
    kind: (f'{str(key).replace(" ", "_")}.{kind}', content)
    for kind, content in contents.items()
  }
  program = manifest_lib.Program(
    key=str(key),
    dropped=serialized.dropped,
    memory=memory(compiled),
    files={k: program_set.file_of(*each) for k, each in named.items()},
  )
  return program, dict(named.values())


def memory(compiled: jax.stages.Compiled) -> manifest_lib.Memory:
  """What a program takes on each device, as its compiler says."""
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
def _without_source_paths() -> Iterator[None]:
  """Keeps the paths of the source files out of what is compiled."""
  name = 'jax_traceback_in_locations_limit'
  before = getattr(jax.config, name)
  jax.config.update(name, 0)
  try:
    yield
  finally:
    jax.config.update(name, before)
