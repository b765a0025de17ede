"""Compiles the programs of an engine into a set.

Two sets from the same sources, flags and devices have identical bytes if a
separate process compiles each set. XLA numbers the programs of a process and
writes the numbers into the programs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
import contextlib
import threading
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

# A program, and the content of its files by path.
Built = tuple[manifest_lib.Program, dict[str, bytes]]
# Returns the content of additional files of a compiled program, by kind.
MoreFiles = Callable[[jax.stages.Compiled], Mapping[str, bytes]]
# Receives a set before it is written: its manifest, and the content of its
# files by path. The returned files are written too. If it raises, the set is
# not written.
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
  """Compiles programs and writes them as a set atomically.

  Args:
    path: The set's directory, which is empty or does not exist.
    run: The engine's programs. The weights may be shapes, and the devices may
      be those of a described topology.
    keys: The programs to compile; see `Executables.keys`.
    serving: The params that the engine was created from.
    xla_flags: The options for the compiler.
    stablehlo: True to also keep the programs as StableHLO.
    finish: The function to call before the set is written.
    elsewhere: The function that compiles a program like `build`, but in a
      separate process. None compiles all programs in this process.
    jobs: The number of programs to compile at a time. Use more than 1 only with
      `elsewhere`, otherwise the bytes are not reproducible.
    progress: The function that receives one line per program.

  Returns:
    The manifest that was written.

  Raises:
    errors.ResourceExhausted: A program is too large for the devices' memory.
    errors.Internal: The compiler rejects a program for another reason.
    OSError: The set cannot be written.
    ValueError: A program cannot be serialized; see `serialization.serialize`.
  """
  configuration = configuration_lib.from_executables(run, serving)
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
    # After a failure, do not start the remaining programs.
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
  """Compiles a program and returns it with the content of its files by path.

  Args:
    run: The engine's programs, as in `compile_set`.
    key: The key of the program.
    options: The options for the compiler.
    stablehlo: True to also keep the program as StableHLO.
    more_files: The function that returns the content of additional files by
      kind.

  Raises:
    errors.ResourceExhausted: The program is too large for the devices' memory.
    errors.Internal: The compiler rejects the program for another reason.
    ValueError: The program cannot be serialized.
  """
  with _REPRODUCIBLE:
    lowered = run.lower(key)
    try:
      compiled = lowered.compile(dict(options))
    except jax.errors.JaxRuntimeError as e:
      # The first paragraph describes the problem. A list of buffers may follow.
      reason = str(e).split('\n\n')[0]
      too_large = reason.startswith('RESOURCE_EXHAUSTED')
      kind = errors.ResourceExhausted if too_large else errors.Internal
      raise kind(f'XLA cannot compile {str(key)!r}: {reason}') from e
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
    files={k: program_set.file_of(*file) for k, file in named.items()},
  )
  return program, dict(named.values())


def memory(compiled: jax.stages.Compiled) -> manifest_lib.Memory:
  """Returns the memory that a program uses on each device."""
  analysis = compiled.memory_analysis()
  return manifest_lib.Memory(
    peak=analysis.peak_memory_in_bytes,
    arguments=analysis.argument_size_in_bytes,
    temporaries=analysis.temp_size_in_bytes,
    outputs=analysis.output_size_in_bytes,
    aliased=analysis.alias_size_in_bytes,
    code=analysis.generated_code_size_in_bytes,
  )


@contextlib.contextmanager
def _configured(name: str, value: Any) -> Iterator[None]:
  """Sets an option of JAX during a `with` block."""
  before = getattr(jax.config, name)
  jax.config.update(name, value)
  try:
    yield
  finally:
    jax.config.update(name, before)


class _Reproducible:
  """Configures JAX during `with` blocks, which several threads may enter.

  Programs then contain no source paths. JAX's compilation cache is disabled,
  because XLA for CPU (jaxlib 0.10) serializes cached programs without some of
  their functions. JAX reads this setting again only after a reset.
  """

  def __init__(self):
    self._lock = threading.Lock()
    self._count = 0
    self._settings = contextlib.ExitStack()

  def __enter__(self) -> None:
    with self._lock:
      self._count += 1
      if self._count == 1:
        for name, value in _SETTINGS.items():
          self._settings.enter_context(_configured(name, value))
        compilation_cache.reset_cache()

  def __exit__(self, *_: object) -> None:
    with self._lock:
      self._count -= 1
      if not self._count:
        self._settings.close()
        compilation_cache.reset_cache()


_SETTINGS = {
  'jax_traceback_in_locations_limit': 0,
  'jax_enable_compilation_cache': False,
}
_REPRODUCIBLE = _Reproducible()
