"""The life of each model on this server, as a small state machine.

                        +-------- unload --------+
                        |                        v
  (absent) --load--> LOADING --> LOADED ---> UNLOADING --> (absent)
                        |           |
                        +--> FAILED <+   (its reason is kept)

LOADING and UNLOADING begin when a request for them is accepted; the work is
done by one thread, in the order of acceptance, so that two loads never compete
for memory and cores. A model that is to be unloaded before it is loaded never
serves: a load that waits is left out, one that runs ends after the variable
that it reads or the programs that it compiles (see `cancellation`). A model
that is to be loaded while it is unloaded is loaded after that. A failed model
stays listed until it is loaded again or unloaded.

A reload refuses nobody. With room for both, the new weights are loaded beside
the old ones, which serve until then: the state stays LOADED, also where the new
ones cannot be loaded, and then `Entry.reason` tells why. Without it the old
ones answer what they hold and go first; the state is LOADING, and requests are
held until it ends (`Models.held`).
"""

from collections.abc import Callable, Mapping
from concurrent import futures
import dataclasses
import threading
import time
from typing import Generic, TypeAlias

from absl import logging

from saxml_ext.common import errors
from saxml_ext.common import memory
from saxml_ext.server.lifecycle import cancellation
from saxml_ext.server.lifecycle import entry as entry_lib

# As upstream: further work is refused while this much waits.
_MAX_PENDING = 4

State: TypeAlias = entry_lib.State
Entry = entry_lib.Entry
LoadFn: TypeAlias = Callable[
  [entry_lib.Spec, Callable[[str], None]], entry_lib.ModelT
]


class Models(Generic[entry_lib.ModelT]):
  """The models of one server, by key. Safe to use from several threads.

  A lock guards the table of models. No model is loaded or closed under it.

  Attributes:
    dormancy: of the server.
    load_seconds: that the last load of a model took, by key.
  """

  def __init__(
    self,
    load_fn: LoadFn[entry_lib.ModelT],
    has_room: Callable[[entry_lib.Spec], bool] = lambda spec: False,
    dormancy: entry_lib.Dormancy | None = None,
  ):
    """Starts without a model.

    Args:
      load_fn: loads a model, see `loader.load`.
      has_room: whether a model can be loaded beside those that are here; it
        raises what `load_fn` would if it can tell that without loading.
      dormancy: of the server; None: it is always active.
    """
    self.dormancy = dormancy or entry_lib.Dormancy()
    # Reentrant: a future that is done calls back at once.
    self._lock = threading.RLock()
    self._entries: dict[str, Entry[entry_lib.ModelT]] = {}
    self._load_fn = load_fn
    self._has_room = has_room
    self.load_seconds: dict[str, float] = {}
    # What is to be loaded once the model of that key has been unloaded.
    self._again: dict[str, entry_lib.Spec] = {}
    self._pending = 0
    self._worker = futures.ThreadPoolExecutor(1, thread_name_prefix='loader')

  def entries(self) -> dict[str, Entry[entry_lib.ModelT]]:
    """Returns a copy of the table."""
    with self._lock:
      return dict(self._entries)

  def serving(self, key: str) -> entry_lib.Serving[entry_lib.ModelT]:
    """Returns a model that serves.

    Raises:
      errors.NotFound: it does not serve. The message lists those that do.
      errors.Unavailable: this server is dormant, and refuses early.
    """
    if self.dormancy.reason:
      self.dormancy.check()
    entry = self._entries.get(key)
    if entry and entry.state is State.LOADED and entry.model is not None:
      return entry_lib.Serving(entry.spec, entry.model)
    known = ', '.join(
      k for k, e in self.entries().items() if e.state is State.LOADED
    )
    why = 'is still loading or already unloaded'
    if entry and entry.state is State.FAILED:
      why = f'failed: {entry.reason}'
    raise errors.NotFound(f'{key} {why}. Available models: {known or "none"}')

  def held(self, key: str) -> futures.Future | None:
    """Returns a future that ends when it is worth while to ask `serving` again.

    It is None if a model does not serve and is not being reloaded.

    Raises:
      errors.ResourceExhausted: too many requests wait for it.
    """
    entry = self._entries.get(key)
    if entry and entry.state is State.LOADED:
      # It has begun to serve since the caller asked.
      hold = entry_lib.Hold(key, 0)
      hold.release()
      return hold.wait()
    return entry.hold.wait() if entry and entry.hold else None

  def load(self, key: str, spec: entry_lib.Spec) -> futures.Future:
    """Starts loading; the future ends when the model serves or has failed.

    A model that is here already is left as it is, except that one that failed
    is tried again, and one that is being unloaded is loaded after that.

    Raises:
      errors.InvalidArgument: the key is empty.
      errors.ResourceExhausted: too much waits for the loading thread.
    """
    if not key:
      raise errors.InvalidArgument('model_key is empty; give a model id')
    with self._lock:
      entry = self._entries.get(key)
      unloading = entry is not None and entry.state is State.UNLOADING
      if unloading and key not in self._again:
        future = self._submit(self._load_again, key)
        self._again[key] = spec
        return future
      if entry is not None and entry.state is not State.FAILED:
        # Behind whatever the worker still does with this model.
        return self._submit(self._settled, key)
      future = self._submit(self._load, key, spec)
      self._entries[key] = Entry(spec, State.LOADING)
    return future

  def reload(self, key: str, checkpoint_path: str) -> futures.Future:
    """Starts replacing the weights of a model.

    The loaded ones stay if they come from that path. No request is refused
    meanwhile, see above.

    Raises:
      errors.NotFound: there is no such model.
      errors.ResourceExhausted: too much waits for the loading thread.
    """
    with self._lock:
      entry = self._known(key)
      if entry.state is State.UNLOADING:
        raise errors.NotFound(f'{key} is being unloaded; publish it again')
      return self._submit(self._replace, key, checkpoint_path)

  def set_acls(self, key: str, acls: Mapping[str, str]) -> None:
    """Replaces a model's ACLs; raises errors.NotFound."""
    with self._lock:
      spec = dataclasses.replace(self._known(key).spec, acls=dict(acls))
      self._set(key, spec=spec)

  def unload(self, key: str) -> futures.Future:
    """Starts unloading; new requests are refused from now on.

    Raises:
      errors.InvalidArgument: the key is empty, unknown or being unloaded.
      errors.ResourceExhausted: too much waits for the loading thread.
    """
    with self._lock:
      entry = self._entries.get(key)
      if self._again.pop(key, None) is not None:
        return self._submit(lambda: None)  # It will not be loaded again.
      if entry is None or entry.state is State.UNLOADING:
        raise errors.InvalidArgument(self._unknown(key))
      future = self._submit(self._unload, key)
      if entry.state is not State.FAILED:
        # Of a model that is still being loaded, it tells the loading thread
        # that nobody wants the result.
        self._set(key, state=State.UNLOADING, hold=None)
        if entry.hold is not None:
          entry.hold.release()
    return future

  def close(self, drain: bool) -> None:
    """Stops every model; a load in progress is not waited for."""
    self._worker.shutdown(wait=False, cancel_futures=True)
    for key, entry in self.entries().items():
      if entry.hold is not None:
        with self._lock:
          self._set(key, hold=None)
        entry.hold.release()
      if entry.model is not None:
        entry.model.close(drain)

  def _known(self, key: str) -> Entry[entry_lib.ModelT]:
    if key not in self._entries:
      raise errors.NotFound(self._unknown(key))
    return self._entries[key]

  def _unknown(self, key: str) -> str:
    loaded = ', '.join(self._entries) or 'none'
    return f'model_key {key!r} is not loaded here; loaded are: {loaded}'

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

  def _set(self, key: str, **changes) -> None:
    self._entries[key] = dataclasses.replace(self._entries[key], **changes)

  def _check_wanted(self, key: str) -> None:
    """Raises NotFound if a model is to be unloaded, or gone, by now."""
    entry = self.entries().get(key)
    if entry is None or entry.state is State.UNLOADING:
      raise errors.NotFound(f'{key} was unloaded while it was being loaded')

  # Below: on the loading thread only.

  def _settled(self, key: str) -> None:
    """Tells a repeated load how the first one ended."""
    entry = self.entries().get(key)
    if entry is not None and entry.state is State.FAILED:
      raise errors.from_code(entry.code, entry.reason)

  def _load(self, key: str, spec: entry_lib.Spec) -> None:
    self._check_wanted(key)
    try:
      self._start(key, spec)
    except errors.SaxError as e:
      with self._lock:
        self._check_wanted(key)
        self._set(
          key, state=State.FAILED, reason=e.message, code=e.code, hold=None
        )
      raise

  def _load_again(self, key: str) -> None:
    with self._lock:
      spec = self._again.pop(key, None)
      if spec is None:
        raise errors.NotFound(f'{key} was unloaded before it was loaded')
      self._entries[key] = Entry(spec, State.LOADING)
    self._load(key, spec)

  def _start(self, key: str, spec: entry_lib.Spec) -> entry_lib.ModelT | None:
    """Loads a model and has it serve; returns the one that served before.

    Raises:
      errors.SaxError: it cannot be loaded, or nobody wants it any more. What
        was loaded until then is given up.
    """
    begin = time.monotonic()
    failed: list[str] = []
    models: list[entry_lib.ModelT] = []

    def on_failure(reason: str) -> None:
      """Notes a failure of the engine, maybe before its model serves."""
      with self._lock:
        failed.append(reason)
        if models:
          self._engine_failed(key, models[0], reason)

    try:
      with cancellation.checking(lambda: self._check_wanted(key)):
        model = self._load_fn(spec, on_failure)
    except Exception as e:  # pylint: disable=broad-exception-caught
      error = errors.from_exception(e, 'Loading error')
      # What is wrong with the request is in the message already.
      trace = None if error is e else e
      logging.error('loading %s failed: %s', key, error.message, exc_info=trace)
      cancellation.drop_frames(e)
      memory.collect()
      raise error from e
    self.load_seconds[key] = time.monotonic() - begin
    try:
      with self._lock:
        self._check_wanted(key)
        old = self._entries[key]
        spec = dataclasses.replace(spec, acls=old.spec.acls)
        self._entries[key] = Entry(spec, State.LOADED, model=model)
        models.append(model)
        if failed:
          self._engine_failed(key, model, failed[0])
    except errors.NotFound:
      model.close(drain=False)
      raise
    logging.info('loading completed. %s serves %s', key, spec.checkpoint_path)
    return old.model

  def _engine_failed(
    self, key: str, model: entry_lib.ModelT, reason: str
  ) -> None:
    entry = self._entries.get(key)
    # A model that was replaced meanwhile does not count.
    if entry is not None and entry.model is model:
      self._set(key, state=State.FAILED, reason=reason, model=None)

  def _replace(self, key: str, checkpoint_path: str) -> None:
    with self._lock:
      self._check_wanted(key)
      entry = self._entries[key]
      serves = entry.state is State.LOADED
      if serves and entry.spec.checkpoint_path == checkpoint_path:
        self._set(key, reason='')
        return
      spec = dataclasses.replace(entry.spec, checkpoint_path=checkpoint_path)
      if not serves:
        self._entries[key] = Entry(spec, State.LOADING)
      del entry  # Nothing may keep the old weights from here on.
    if not serves:
      self._load(key, spec)
      return
    try:
      beside = self._has_room(spec)
      # The old weights serve while the new ones are loaded.
      old = self._start(key, spec) if beside else None
    except Exception as e:  # pylint: disable=broad-exception-caught
      error = errors.from_exception(e, 'Loading error')
      self._keep(key, spec, error)
      if error is e:
        raise
      raise error from e
    if not beside:
      self._replace_after(key, spec)
      return
    if old is not None:  # Its engine may have failed meanwhile.
      old.close(drain=True)
    del old
    memory.collect()

  def _replace_after(self, key: str, spec: entry_lib.Spec) -> None:
    """Loads new weights once the old ones are gone; requests are held."""
    with self._lock:
      self._check_wanted(key)
      old = self._entries[key].model
      limit = 1 if old is None else old.admission_limit
      hold = entry_lib.Hold(key, limit)
      self._entries[key] = Entry(spec, State.LOADING, hold=hold)
    try:
      if old is not None:
        old.close(drain=True)
      # There may be room for one of the two only.
      del old
      memory.collect()
      self._load(key, spec)
    finally:
      hold.release()

  def _keep(
    self, key: str, spec: entry_lib.Spec, error: errors.SaxError
  ) -> None:
    """Notes why a model goes on with the weights that it has."""
    with self._lock:
      entry = self._entries.get(key)
      if entry is None or entry.state is not State.LOADED:
        return
      reason = (
        f'still serves {entry.spec.checkpoint_path}, because'
        f' {spec.checkpoint_path} cannot be loaded: {error.message}'
      )
      self._set(key, reason=reason)
    logging.error('%s %s', key, reason)

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
    logging.info('Unloaded %s', key)
    del entry
    memory.collect()
