"""The life of each model on this server, as a small state machine.

                        +-------- unload --------+
                        |                        v
  (absent) --load--> LOADING --> LOADED ---> UNLOADING --> (absent)
                        |           |
                        +--> FAILED <+   (its reason is kept)

LOADING and UNLOADING begin when a request for them is accepted; the work is
done by one thread, in the order of acceptance, so that two loads never compete
for memory and cores. A model that is to be unloaded before it is loaded never
serves: a load that waits is left out, the result of one that runs is dropped. A failed model stays listed until it is loaded again or
unloaded.
"""

from collections.abc import Callable, Mapping
from concurrent import futures
import dataclasses
import enum
import threading
import time
import traceback
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from absl import logging

from saxml_ext.common import errors
from saxml_ext.common import memory
from saxml_ext.server.loading import spec as spec_lib

# As upstream: further work is refused while this much waits.
_MAX_PENDING = 4


class State(enum.Enum):
  """Where a model stands."""

  LOADING = 'loading'
  LOADED = 'loaded'
  FAILED = 'failed'
  UNLOADING = 'unloading'


class Model(Protocol):
  """What the life cycle needs of a loaded model."""

  def close(self, drain: bool) -> None:
    """Stops it; with `drain` after it has answered what it holds."""


ModelT = TypeVar('ModelT', bound=Model)


@dataclasses.dataclass(frozen=True)
class Entry(Generic[ModelT]):
  """One model as of now.

  Attributes:
    spec: what was asked for.
    state: where it stands.
    reason: why it failed; empty otherwise.
    model: the servable; only LOADED ones serve.
    seconds: that its load took; 0 before it is over.
  """

  spec: spec_lib.Spec
  state: State
  reason: str = ''
  model: ModelT | None = None
  seconds: float = 0.0


class Serving(NamedTuple, Generic[ModelT]):
  """A model that serves, and what was asked for."""

  spec: spec_lib.Spec
  model: ModelT


LoadFn: TypeAlias = Callable[[spec_lib.Spec, Callable[[str], None]], ModelT]


class Models(Generic[ModelT]):
  """The models of one server, by key. Safe to use from several threads."""

  def __init__(self, load_fn: LoadFn[ModelT]):
    """Takes the function that loads a model, see `loader.load`."""
    self._load_fn = load_fn
    # Reentrant: a future that is done calls back at once.
    self._lock = threading.RLock()
    self._entries: dict[str, Entry[ModelT]] = {}
    self._pending = 0
    self._worker = futures.ThreadPoolExecutor(1, thread_name_prefix='loader')

  def entries(self) -> dict[str, Entry[ModelT]]:
    """All models, a copy."""
    with self._lock:
      return dict(self._entries)

  def serving(self, key: str) -> Serving[ModelT]:
    """A model that serves.

    Raises:
      errors.NotFound: there is none; the message says what there is.
    """
    entry = self._entries.get(key)
    if entry is not None and entry.state is State.LOADED:
      if entry.model is not None:
        return Serving(entry.spec, entry.model)
    known = ', '.join(
      k for k, e in self.entries().items() if e.state is State.LOADED
    )
    if entry is not None and entry.state is State.FAILED:
      why = f'failed: {entry.reason}'
    else:
      why = 'is still loading or already unloaded'
    raise errors.NotFound(f'{key} {why}. Available models: {known or "none"}')

  def load(self, key: str, spec: spec_lib.Spec) -> futures.Future:
    """Starts loading; the future ends when the model serves or has failed.

    A model that is here already is left as it is, except that one that failed
    is tried again.

    Raises:
      errors.InvalidArgument: the key is empty.
      errors.ResourceExhausted: too much waits for the loading thread.
    """
    if not key:
      raise errors.InvalidArgument('model_key is empty; give a model id')
    with self._lock:
      entry = self._entries.get(key)
      if entry is not None and entry.state is not State.FAILED:
        # Behind whatever the worker still does with this model.
        return self._submit(self._settled, key)
      future = self._submit(self._load, key, spec)
      self._entries[key] = Entry(spec, State.LOADING)
    return future

  def reload(self, key: str, checkpoint_path: str) -> futures.Future:
    """Starts replacing the weights of a model.

    The loaded ones stay if they come from that path. A running model answers
    what it holds first.

    Raises:
      errors.NotFound: there is no such model.
      errors.ResourceExhausted: too much waits for the loading thread.
    """
    with self._lock:
      entry = self._known(key)
      if entry.state is State.UNLOADING:
        raise errors.NotFound(f'{key} is being unloaded; publish it again')
      same = entry.spec.checkpoint_path == checkpoint_path
      if same and entry.state is not State.FAILED:
        return self._submit(self._settled, key)
      spec = dataclasses.replace(entry.spec, checkpoint_path=checkpoint_path)
      future = self._submit(self._replace, key, spec)
    return future

  def set_acls(self, key: str, acls: Mapping[str, str]) -> None:
    """Replaces a model's ACLs; raises errors.NotFound."""
    with self._lock:
      entry = self._known(key)
      spec = dataclasses.replace(entry.spec, acls=dict(acls))
      self._entries[key] = dataclasses.replace(entry, spec=spec)

  def unload(self, key: str) -> futures.Future:
    """Starts unloading; new requests are refused from now on.

    Raises:
      errors.InvalidArgument: the key is empty, unknown or being unloaded.
      errors.ResourceExhausted: too much waits for the loading thread.
    """
    with self._lock:
      entry = self._entries.get(key)
      if entry is None or entry.state is State.UNLOADING:
        known = ', '.join(self._entries) or 'none'
        raise errors.InvalidArgument(
          f'model_key {key!r} is not loaded here; loaded are: {known}'
        )
      future = self._submit(self._unload, key)
      if entry.state is not State.FAILED:
        # Of a model that is still being loaded, it tells the loading thread
        # that nobody wants the result.
        self._set(key, state=State.UNLOADING)
    return future

  def close(self, drain: bool) -> None:
    """Stops every model; a load in progress is not waited for."""
    self._worker.shutdown(wait=False, cancel_futures=True)
    for entry in self.entries().values():
      if entry.model is not None:
        entry.model.close(drain)

  def _known(self, key: str) -> Entry[ModelT]:
    if key not in self._entries:
      raise errors.NotFound(
        f'model_key {key!r} is not loaded here; loaded are:'
        f' {", ".join(self._entries) or "none"}'
      )
    return self._entries[key]

  def _set(self, key: str, **changes) -> None:
    self._entries[key] = dataclasses.replace(self._entries[key], **changes)

  def _submit(self, work: Callable[..., None], *args) -> futures.Future:
    if self._pending >= _MAX_PENDING:
      raise errors.ResourceExhausted(
        f'{self._pending} models wait for being loaded or unloaded, and the'
        f' limit is {_MAX_PENDING}; try again when one of them is done'
      )
    self._pending += 1
    future = self._worker.submit(work, *args)
    future.add_done_callback(self._ended)
    return future

  def _ended(self, _: futures.Future) -> None:
    with self._lock:
      self._pending -= 1

  # Below: on the loading thread only.

  def _settled(self, key: str) -> None:
    """Tells a repeated load how the first one ended."""
    entry = self.entries().get(key)
    if entry is not None and entry.state is State.FAILED:
      raise errors.Internal(entry.reason)

  def _load(self, key: str, spec: spec_lib.Spec) -> None:
    self._check_wanted(key)
    watch = _FailureWatch(self._engine_failed, key)
    begin = time.monotonic()
    try:
      model = self._load_fn(spec, watch.on_failure)
    except Exception as e:  # pylint: disable=broad-exception-caught
      error = errors.from_exception(e, 'Loading error')
      logging.error(
        'loading %s failed: %s',
        key,
        error.message,
        # What is wrong with the request is in the message already.
        exc_info=None if error is e else e,
      )
      with self._lock:
        self._set(key, state=State.FAILED, reason=error.message)
      _drop_frames(e)
      memory.collect()
      raise error from e
    try:
      with self._lock:
        self._check_wanted(key)
        seconds = time.monotonic() - begin
        self._set(key, state=State.LOADED, model=model, seconds=seconds)
    except errors.NotFound:
      model.close(drain=False)
      raise
    watch.begin(model)

  def _check_wanted(self, key: str) -> None:
    """Raises NotFound if a model is to be unloaded, or gone, by now."""
    entry = self.entries().get(key)
    if entry is None or entry.state is State.UNLOADING:
      raise errors.NotFound(f'{key} was unloaded while it was being loaded')

  def _engine_failed(self, key: str, model: ModelT, reason: str) -> None:
    with self._lock:
      entry = self._entries.get(key)
      # A model that was replaced meanwhile does not count.
      if entry is not None and entry.model is model:
        self._set(key, state=State.FAILED, reason=reason, model=None)

  def _replace(self, key: str, spec: spec_lib.Spec) -> None:
    with self._lock:
      self._check_wanted(key)
      old = self._entries[key].model
      spec = dataclasses.replace(spec, acls=self._entries[key].spec.acls)
      self._entries[key] = Entry(spec, State.LOADING)
    if old is not None:
      old.close(drain=True)
    # There may be room for one of the two only.
    del old
    memory.collect()
    self._load(key, spec)

  def _unload(self, key: str) -> None:
    with self._lock:
      entry = self._entries.get(key)
      if entry is None:
        return
      self._set(key, state=State.UNLOADING)
    if entry.model is not None:
      entry.model.close(drain=True)
    with self._lock:
      del self._entries[key]
    del entry
    memory.collect()


class _FailureWatch(Generic[ModelT]):
  """Passes an engine's failure on, once its model is in the table."""

  def __init__(self, notify: Callable[[str, ModelT, str], None], key: str):
    self._notify = notify
    self._key = key
    self._lock = threading.Lock()
    self._model: ModelT | None = None
    self._reason: str | None = None

  def on_failure(self, reason: str) -> None:
    with self._lock:
      self._reason = reason
      model = self._model
    if model is not None:
      self._notify(self._key, model, reason)

  def begin(self, model: ModelT) -> None:
    with self._lock:
      self._model = model
      reason = self._reason
    if reason is not None:
      self._notify(self._key, model, reason)


def _drop_frames(error: BaseException | None) -> None:
  """Lets go of what functions that failed had in their variables.

  A traceback keeps it otherwise, such as the weights that were read until
  then, as long as anybody keeps the error.
  """
  while error is not None:
    traceback.clear_frames(error.__traceback__)
    error = error.__cause__ or error.__context__
