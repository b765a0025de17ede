"""Compiles the programs of an engine into a set.

Two sets of the same sources, flags and devices have the same bytes if each is
compiled by a process that compiles nothing else: XLA numbers the programs of a
process, and writes the number into them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import contextlib
import time

import jax

from saxml_ext.aot import configuration as configuration_lib
from saxml_ext.aot import cpu_order
from saxml_ext.aot import exporting
from saxml_ext.aot import manifest as manifest_lib
from saxml_ext.aot import program_set
from saxml_ext.aot import serialization
from saxml_ext.engine import executables

# More files of a compiled program: content by kind.
MoreFiles = Callable[[jax.stages.Compiled], Mapping[str, bytes]]


def compile_set(
  path: str,
  run: executables.Executables,
  keys: Sequence[executables.Key],
  serving: manifest_lib.Serving,
  *,
  xla_flags: Mapping[str, str] | None = None,
  stablehlo: bool = True,
  more_files: MoreFiles = lambda _: {},
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
    progress: gets a line for each program.

  Returns:
    What was written.

  Raises:
    jax.errors.JaxRuntimeError: the compiler refuses a program, for example as
      too large for the devices' memory.
    OSError: the set cannot be written.
    ValueError: a program cannot be kept; see `serialization.serialize`.
  """
  configuration = configuration_lib.of(run, serving)
  programs = []
  files: dict[str, bytes] = {}
  with _without_source_paths():
    for number, key in enumerate(keys, 1):
      began = time.monotonic()
      compiled = run.lower(key).compile(dict(xla_flags or {}))
      serialized = serialization.serialize(compiled)
      executable = serialized.executable
      if configuration.target.platform == 'cpu':
        executable = cpu_order.sort(executable)
      contents = {manifest_lib.EXECUTABLE: executable}
      if stablehlo:
        contents[manifest_lib.STABLEHLO] = exporting.stablehlo(run, key)
      contents |= more_files(compiled)
      named = {
        kind: (f'{str(key).replace(" ", "_")}.{kind}', content)
        for kind, content in contents.items()
      }
      files |= dict(named.values())
      program = manifest_lib.Program(
        key=str(key),
        dropped=serialized.dropped,
        memory=memory(compiled),
        files={k: program_set.file_of(*each) for k, each in named.items()},
      )
      programs.append(program)
      progress(
        f'compiled {number} of {len(keys)}: {key}'
        f' ({time.monotonic() - began:.1f} s,'
        f' {program.files[manifest_lib.EXECUTABLE].bytes} bytes)'
      )
  manifest = manifest_lib.Manifest(
    format=manifest_lib.FORMAT,
    configuration=configuration,
    xla_flags=dict(xla_flags or {}),
    programs=tuple(sorted(programs, key=lambda p: p.key)),
  )
  program_set.write(path, manifest, files)
  return manifest


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
