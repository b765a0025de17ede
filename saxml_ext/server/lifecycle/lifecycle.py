"""Manages the life of each model on this server, as a small state machine.

                        +-------- unload --------+
                        |                        v
  (absent) --load--> LOADING --> LOADED ---> UNLOADING --> (absent)
                        |           |
                        +--> FAILED <+   (its reason is kept)

LOADING and UNLOADING begin when a request for them is accepted. One thread does
the work in that order, so two loads never compete for memory and cores.

If a model is unloaded before it is loaded, it never serves. A waiting load is
skipped. A running load ends after the current variable is read or the current
programs are compiled (see `cancellation`). If a model is loaded while it is
being unloaded, the load follows the unload. A failed model stays listed until
it is loaded again or unloaded.

A reload refuses no requests. If there is memory for both, the new weights are
loaded while the old ones serve. The state stays LOADED, even if the new weights
cannot be loaded. Then `Entry.reason` has the reason. If there is no memory for
both, the old model answers its pending requests and is removed first. The state
is LOADING, and requests wait until it ends (`Models.held`).
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

# As upstream, this many loads and unloads may wait before more are refused.
_MAX_PENDING = 4

State: TypeAlias = entry_lib.State
Entry = entry_lib.Entry
LoadFn: TypeAlias = Callable[
  [entry_lib.Spec, Callable[[str], None]], entry_lib.ModelT
]


class Models(Generic[entry_lib.ModelT]):
  """The models of one server, by key. Safe to use from several threads.

  A lock guards the table. No model is loaded or closed while it is held.

  Attributes:
    dormancy: The dormancy of the server.
    load_seconds: The elapsed time of the last load of each model, by key.
  """

  def __init__(
    self,
    load_fn: LoadFn[entry_lib.ModelT],
    has_room: Callable[[entry_lib.Spec], bool] = lambda spec: False,
    dormancy: entry_lib.Dormancy | None = None,
  ):
    """Creates an empty table of models.

    Args:
      load_fn: A function that loads a model, see `loader.load`.
      has_room: A function that returns True if a model fits into memory with
        the loaded ones. It may raise errors of `load_fn` that are known before
        the load.
      dormancy: The dormancy of the server; None if it is always active.
    """
    self.dormancy = dormancy or entry_lib.Dormancy()
    # The lock is reentrant, because a finished future calls back at once.
    self._lock = threading.RLock()
    self._entries: dict[str, Entry[entry_lib.ModelT]] = {}
    self._load_fn = load_fn
    self._has_room = has_room
    self.load_seconds: dict[str, float] = {}
    # The models to load after the model of the same key has been unloaded.
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
      errors.NotFound: It does not serve. The message lists those that do.
      errors.Unavailable: This server is dormant and refuses requests early.
    """
    if self.dormancy.reason:
      self.dormancy.check()
    entry = self._entries.get(key)
    if entry and entry.state is State.LOADED and entry.model is not None:
      return entry_lib.Serving(entry.spec, entry.model)
    serving = [k for k, e in self.entries().items() if e.state is State.LOADED]
    known = ', '.join(serving)
    why = 'is still loading or already unloaded'
    if entry and entry.state is State.FAILED:
      why = f'failed: {entry.reason}'
    raise errors.NotFound(f'{key} {why}. Available models: {known or "none"}')

  def held(self, key: str) -> futures.Future | None:
    """Returns a future that is done when the caller should retry `serving`.

    It returns None if the model neither serves nor is being reloaded.

    Raises:
      errors.ResourceExhausted: Too many requests wait for the model.
    """
    entry = self._entries.get(key)
    if entry and entry.state is State.LOADED:  # Since the caller's last check.
      hold = entry_lib.Hold(key, 0)
      hold.release()
      return hold.wait()
    return entry.hold.wait() if entry and entry.hold else None

  def load(self, key: str, spec: entry_lib.Spec) -> futures.Future:
    """Starts a load; the future is done when the model serves or has failed.

    A loaded model is not loaded again. A failed model is loaded again, and a
    model that is being unloaded is loaded afterwards.

    Raises:
      errors.InvalidArgument: The key is empty.
      errors.ResourceExhausted: Too many tasks wait for the loading thread.
    """
    if not key:
      raise errors.InvalidArgument('model_key is empty. Set it to a model id.')
    with self._lock:
      entry = self._entries.get(key)
      unloading = entry is not None and entry.state is State.UNLOADING
      if unloading and key not in self._again:
        future = self._submit(self._load_again, key)
        self._again[key] = spec
        return future
      if entry is not None and entry.state is not State.FAILED:
        # This task waits for the earlier tasks of the model on the worker.
        return self._submit(self._settled, key)
      future = self._submit(self._load, key, spec)
      self._entries[key] = Entry(spec, State.LOADING)
    return future

  def reload(self, key: str, checkpoint_path: str) -> futures.Future:
    """Starts to replace the weights of a model.

    If the loaded weights already come from that path, they stay. No request is
    refused during the reload, see the module docstring.

    Raises:
      errors.NotFound: There is no such model.
      errors.ResourceExhausted: Too many tasks wait for the loading thread.
    """
    with self._lock:
      entry = self._known(key)
      if entry.state is State.UNLOADING:
        raise errors.NotFound(f'{key} is being unloaded. Publish it again.')
      return self._submit(self._replace, key, checkpoint_path)

  def set_acls(self, key: str, acls: Mapping[str, str]) -> None:
    """Replaces a model's ACLs; raises errors.NotFound."""
    with self._lock:
      spec = dataclasses.replace(self._known(key).spec, acls=dict(acls))
      self._set(key, spec=spec)

  def unload(self, key: str) -> futures.Future:
    """Starts to unload a model; new requests are refused from now on.

    Raises:
      errors.InvalidArgument: The key is empty, unknown or being unloaded.
      errors.ResourceExhausted: Too many tasks wait for the loading thread.
    """
    with self._lock:
      entry = self._entries.get(key)
      if self._again.pop(key, None) is not None:
        return self._submit(lambda: None)  # This cancels the pending load.
      if entry is None or entry.state is State.UNLOADING:
        raise errors.InvalidArgument(self._unknown(key))
      future = self._submit(self._unload, key)
      if entry.state is not State.FAILED:
        # This state stops the loading thread if it still loads the model.
        self._set(key, state=State.UNLOADING, hold=None, reason='')
        if entry.hold is not None:
          entry.hold.release()
    return future

  def close(self, drain: bool) -> None:
    """Stops every model without waiting for a load in progress."""
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
    return f'model_key {key!r} is not loaded here. Loaded models: {loaded}'

  def _submit(self, work: Callable[..., None], *args) -> futures.Future:
    if self._pending >= _MAX_PENDING:
      raise errors.ResourceExhausted(
        f'{self._pending} models wait to be loaded or unloaded, and the limit'
        f' is {_MAX_PENDING}. Try again when one of them is done.'
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
    """Raises NotFound if a model was or is to be unloaded."""
    entry = self.entries().get(key)
    if entry is None or entry.state is State.UNLOADING:
      raise errors.NotFound(f'{key} was unloaded while it was being loaded')

  # Only the loading thread calls the methods below.

  def _report(self, key: str, line: str) -> None:
    """Sets the reason of a model that is loading to its progress."""
    with self._lock:
      if key in self._entries and self._entries[key].state is State.LOADING:
        self._set(key, reason=line.partition(': ')[0])

  def _settled(self, key: str) -> None:
    """Raises the error of the first load for a repeated load."""
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
    """Loads a model and puts it into service; returns the previous one.

    Raises:
      errors.SaxError: The model cannot be loaded, or is no longer needed. The
        data loaded so far is released.
    """
    begin = time.monotonic()
    failed: list[str] = []
    models: list[entry_lib.ModelT] = []

    def on_failure(reason: str) -> None:
      """Handles a failure of the engine, perhaps before its model serves."""
      with self._lock:
        failed.append(reason)
        if models:
          self._engine_failed(key, models[0], reason)

    try:
      with cancellation.checking(
        lambda: self._check_wanted(key), lambda line: self._report(key, line)
      ):
        model = self._load_fn(spec, on_failure)
    except Exception as e:  # pylint: disable=broad-exception-caught
      error = errors.from_exception(e, 'Loading error')
      # The message alone explains an invalid request, without a traceback.
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
    # The failure of a model that has been replaced is ignored.
    if key in self._entries and self._entries[key].model is model:
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
      del entry  # Releases the old weights.
    if not serves:
      return self._load(key, spec)
    try:
      beside = self._has_room(spec)
      # The old weights serve while the new ones are loaded.
      old = self._start(key, spec) if beside else None
    except Exception as e:  # pylint: disable=broad-exception-caught
      error = errors.from_exception(e, 'Loading error')
      self._keep(key, spec, error)
      raise error from (None if error is e else e)
    if not beside:
      return self._replace_after(key, spec)
    if old is not None:  # None if its engine has failed.
      old.close(drain=True)
    del old
    memory.collect()

  def _replace_after(self, key: str, spec: entry_lib.Spec) -> None:
    """Removes the old weights, then loads new ones; requests wait for them."""
    with self._lock:
      self._check_wanted(key)
      old = self._entries[key].model
      limit = 1 if old is None else old.admission_limit
      hold = entry_lib.Hold(key, limit)
      self._entries[key] = Entry(spec, State.LOADING, hold=hold)
    try:
      if old is not None:
        old.close(drain=True)
      # There may be memory for only one of the two models.
      del old
      memory.collect()
      self._load(key, spec)
    finally:
      hold.release()

  def _keep(
    self, key: str, spec: entry_lib.Spec, error: errors.SaxError
  ) -> None:
    """Records the reason why a model keeps its old weights."""
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
