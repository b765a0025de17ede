"""Compiles each program of the engine for the shapes of its arguments."""

from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
import contextlib
import copy
import dataclasses
import functools
import threading
import time
from typing import Any, NamedTuple

import jax
from jax import monitoring

from saxml_ext.engine import jobs
from saxml_ext.engine import program_keys
from saxml_ext.engine import sharding
from saxml_ext.engine import state
from saxml_ext.engine import texts
from saxml_ext.engine import weights as weights_lib


class Signature(NamedTuple):
  """The signature of a compiled program, which is necessary to load it.

  Attributes:
    args: The shapes of all arguments, the weights first. With a mesh, they have
      shardings.
    results: The shapes of the results, also with shardings.
    donated: The indices of donated arguments, as in `state.Program`.
  """

  args: tuple[Any, ...]
  results: Any
  donated: tuple[int, ...]


Key = state.Key
# XLA's error message for a program that lacks a function.
_INCOMPLETE = 'NOT_FOUND: Function'

# Returns a program that was compiled before, or None if there is none.
Ready = Callable[[Key, Signature], Callable | None]
# Compiles a program of these executables.
Build = Callable[['Executables', Key], Callable]
# Receives a line about the progress.
Progressed = Callable[[str], None]


@contextlib.contextmanager
def counting_compilations() -> Iterator[list[str]]:
  """Yields a list that collects this process's compilations, on all threads.

  JAX compiles when a function, or an operation outside of functions, gets new
  shapes. A server that has precompiled programs should compile nothing. The
  list contains JAX's names of the functions, in order.
  """
  names: list[str] = []

  def on_event(event: str, duration: float, **more: object) -> None:
    del duration
    if event == '/jax/core/compile/backend_compile_duration':
      names.append(str(more.get('fun_name')))

  monitoring.register_event_duration_secs_listener(on_event)
  try:
    yield names
  finally:
    monitoring.unregister_event_duration_listener(on_event)


class Executables:
  """Compiled programs by key. Safe to use from several threads.

  Programs are loaded or compiled when they are first needed, or all at once, or
  in two steps. This can begin before the weights are read. Only one thread
  prepares a program, and other threads that need it wait for this program
  alone.
  """

  def __init__(
    self,
    settings: state.Settings,
    weights: weights_lib.Weights,
    mesh: jax.sharding.Mesh | None = None,
    ready: Ready | None = None,
    build: Build | None = None,
  ):
    """Creates the table of programs; compiles nothing.

    Args:
      settings: The static settings.
      weights: The model. For `lower` and `signature`, the shapes suffice.
      mesh: The devices that share `weights`. None stands for a single device.
      ready: A source of compiled programs. None stands for no source.
      build: The function that compiles a program that `ready` does not have.
        None stands for JAX alone.
    """
    if mesh is not None:
      model = sharding.padded(mesh, settings.model)
      settings = dataclasses.replace(settings, model=model)
    self._shapes = state.Shapes(settings, weights.stacked)
    self._weights = weights
    self._mesh = mesh
    self._ready = ready
    self._build = build or (lambda run, key: run.lower(key).compile())
    self._programs: dict[Key, Callable] = {}
    self._compiled: set[Key] = set()
    self._lock = threading.Lock()
    self._pending: dict[Key, futures.Future[Callable]] = {}
    self._stopped = threading.Event()

  @property
  def settings(self) -> state.Settings:
    """The settings of the programs, padded for the mesh."""
    return self._shapes.settings

  @property
  def mesh(self) -> jax.sharding.Mesh | None:
    """The devices, or None for the default device."""
    return self._mesh

  @property
  def compiled(self) -> frozenset[Key]:
    """The programs that were compiled by this object."""
    return frozenset(self._compiled)

  def prepared(self, key: Key) -> Callable | None:
    """Returns a program if it is already loaded, else None."""
    return self._programs.get(key)

  @property
  def counts(self) -> tuple[int, int]:
    """The numbers of programs that are ready, and of all."""
    keys = self.keys()
    return sum(map(self.is_ready, keys)), len(keys)

  def is_ready(self, key: Key) -> bool:
    """Returns True if a call of the program starts without a wait."""
    return key in self._programs

  def __call__(self, key: Key, *args):
    """Runs a program with the weights and further arguments."""
    program = self._get(key)
    try:
      return program(self._weights, *args)
    except jax.errors.JaxRuntimeError as e:
      if key in self._compiled or _INCOMPLETE not in str(e):
        raise
    # XLA for CPU (jaxlib 0.10) may serialize a program without all its
    # functions. The error appears in the first call.
    self._programs[key] = self._compile(key)
    return self._programs[key](self._weights, *args)

  @contextlib.contextmanager
  def preparing(self, keys: Sequence[Key]) -> Iterator[None]:
    """Loads or compiles programs on other threads during a `with` block.

    A program that fails is prepared again when it is needed.
    """
    pool = jobs.pool()
    try:
      for key in keys:
        pool.submit(self._get_unless_stopped, key)
      yield
    finally:
      pool.shutdown(wait=False, cancel_futures=True)

  def share(self, other: 'Executables') -> None:
    """Takes over the programs of `other`, including those under way.

    The method has no effect if those are for other settings or shapes.
    """
    if (self.settings, self.mesh) == (other.settings, other.mesh):
      key = program_keys.EmptyState()
      own, others = self.signature(key).args, other.signature(key).args
      if jax.tree.flatten(own) == jax.tree.flatten(others):
        self._programs, self._compiled = other._programs, other._compiled
        self._lock, self._pending = other._lock, other._pending

  def prepare_all(self, progress: Progressed | None = None) -> None:
    """Loads or compiles every program; see `prepare`."""
    self.prepare(self.keys(), progress)

  def prepare(
    self,
    keys: Sequence[Key],
    progress: Progressed | None = None,
    background: bool = False,
  ) -> None:
    """Loads or compiles programs, as many at a time as there are cores.

    On a machine with little memory for its cores, there are fewer at a time.

    Args:
      keys: The programs.
      progress: The function that receives a line for each program, such as
        "compiled 4 of 11 programs, 20 s left: decode 4 (12.3 s)", and a last
        line with the number of programs. If it raises, no further program is
        prepared.
      background: True if other threads run first, and if a program that fails
        does not stop the others.
    """
    missing = [key for key in keys if key not in self._programs]
    pool = jobs.pool(background)
    try:
      tasks = {pool.submit(self._get_unless_stopped, k): k for k in missing}
      self._follow(keys, tasks, progress or (lambda line: None), background)
    finally:
      pool.shutdown(cancel_futures=True)

  def prepare_rest(
    self,
    progress: Progressed,
    done: Callable[['Executables'], None] = lambda run: None,
  ) -> None:
    """Starts to load or compile the other programs on background threads.

    A program that fails does not stop the others. A call that needs it prepares
    it again and raises the error.

    Args:
      progress: As for `prepare`; it also receives a line for each failure.
      done: The function to call at the end, unless `stop` was called. It gets
        these executables with the shapes of the weights alone.
    """
    # The threads need no weights, so a model that is unloaded releases them.
    shapes = copy.copy(self)
    shapes._weights = self._structs

    def run() -> None:
      keys = sorted(shapes.keys(), key=jobs.urgency)
      shapes.prepare(keys, progress, background=True)
      if not shapes._stopped.is_set():
        done(shapes)

    threading.Thread(target=run, name='programs', daemon=True).start()

  def stop(self) -> None:
    """Stops the background threads after their current programs."""
    self._stopped.set()

  def _get_unless_stopped(self, key: Key) -> None:
    if not self._stopped.is_set():
      self._get(key)

  def _follow(
    self,
    keys: Sequence[Key],
    tasks: dict[futures.Future, Key],
    progress: Progressed,
    background: bool,
  ) -> None:
    """Reports each program of `keys` once its task is done."""
    began = time.monotonic()
    for count, task in enumerate(futures.as_completed(tasks), 1):
      if self._stopped.is_set():
        return
      key, seconds = tasks[task], time.monotonic() - began
      if error := task.exception():
        if not background:
          raise error
        progress(f'{key} cannot be prepared: {type(error).__name__}: {error}')
        continue
      left = seconds / count * (len(tasks) - count)
      progress(
        f'{"compiled" if key in self._compiled else "loaded"}'
        f' {len(keys) - len(tasks) + count} of {len(keys)} programs'
        f'{f", {left:.0f} s left" if left else ""}: {key} ({seconds:.1f} s)'
      )
    ready = [key for key in keys if key in self._programs]
    compiled = sum(key in self._compiled for key in ready)
    progress(
      f'{len(ready)} programs are ready: {len(ready) - compiled} loaded,'
      f' {compiled} compiled ({time.monotonic() - began:.1f} s)'
    )

  def signature(self, key: Key) -> Signature:
    """Returns the signature of a program without tracing it."""
    program = key.program(self._shapes)
    args = (self._structs, *program.args)
    if self._mesh is None:
      return Signature(args, program.results, program.donated)
    return Signature(
      sharding.structs(self._mesh, args),
      sharding.structs(self._mesh, program.results),
      program.donated,
    )

  @functools.cached_property
  def _structs(self) -> weights_lib.Weights:
    """The shapes of the weights."""
    return jax.eval_shape(lambda: self._weights)

  def jitted(self, key: Key) -> jax.stages.Wrapped:
    """Returns a program's function, to lower or export it."""
    function, _, results, donated = key.program(self._shapes)
    if self._mesh is None:
      return jax.jit(function, donate_argnums=donated)
    # The state can be donated only if its sharding does not change.
    shardings = sharding.shardings(self._mesh, results)
    return jax.jit(function, donate_argnums=donated, out_shardings=shardings)

  def lower(self, key: Key) -> jax.stages.Lowered:
    """Returns a program that is traced but not compiled."""
    args = self.signature(key).args
    if self._mesh is None:
      return self.jitted(key).lower(*args)
    with jax.set_mesh(self._mesh):
      return self.jitted(key).lower(*args)

  def keys(self) -> list[Key]:
    """Returns all programs that a Runner with these settings calls."""
    e = self._shapes.settings.engine
    inserts: set[program_keys.PrefillAndInsert] = set()
    chunks: set[program_keys.PrefillChunk] = set()
    long: list[Key] = []
    if e.max_context:
      long = [
        *map(program_keys.DecodeSingle, e.widths),
        program_keys.MoveSteps(),
      ]
      for rows in e.prefill_batches:
        inserts.update(
          program_keys.PrefillAndInsert(rows, 0, size) for size in e.buckets
        )
        chunks.add(program_keys.PrefillChunk(rows, 0, e.prefill_chunk))
    else:
      for bucket in e.buckets:
        *firsts, last = e.chunks(bucket)
        for size in e.prefill_batches:
          rows = size * sharding.slot_parts(self._mesh)
          inserts.add(program_keys.PrefillAndInsert(rows, *last))
          chunks.update(
            program_keys.PrefillChunk(rows, *chunk) for chunk in firsts
          )
    return [
      *long,
      *map(program_keys.Decode, e.widths),
      *sorted(inserts),
      *sorted(chunks),
      *program_keys.packs(e),
      texts.Score(),
      program_keys.Hypotheses(),
      *map(program_keys.Progress, e.progress_windows),
      *texts.keys(e),
      program_keys.EmptyState(),
    ]

  def first(self) -> list[Key]:
    """Returns the programs that can answer a short request alone.

    These are the smallest program of each kind that every answer needs, and all
    programs for streams, which are small.
    """
    keys = self.keys()
    decode = (
      program_keys.DecodeSingle
      if self.settings.engine.max_context
      else program_keys.Decode
    )
    kinds = (
      program_keys.EmptyState,
      program_keys.PrefillAndInsert,
      decode,
      program_keys.Hypotheses,
    )
    return [
      *(min(k for k in keys if type(k) is kind) for kind in kinds),
      *(key for key in keys if isinstance(key, program_keys.Progress)),
    ]

  def _get(self, key: Key) -> Callable:
    """Returns a program; prepares it, or waits for the thread that does."""
    if (program := self._programs.get(key)) is not None:
      return program
    own: futures.Future[Callable] = futures.Future()
    with self._lock:
      pending = self._pending.setdefault(key, own)
    if pending is own:
      try:
        self._programs[key] = self._load(key) or self._compile(key)
        own.set_result(self._programs[key])
      except BaseException as e:
        del self._pending[key]  # The next call tries again.
        own.set_exception(e)
    return pending.result()

  def _load(self, key: Key) -> Callable | None:
    return self._ready and self._ready(key, self.signature(key))

  def _compile(self, key: Key) -> Callable:
    self._compiled.add(key)
    return self._build(self, key)
