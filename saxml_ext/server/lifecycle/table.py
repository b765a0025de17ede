"""What a server's models are right now, for those who ask."""

from concurrent import futures
import dataclasses
import threading
from typing import Generic

from saxml_ext.common import errors
from saxml_ext.server.lifecycle import dormancy as dormancy_lib
from saxml_ext.server.lifecycle import entry as entry_lib


class Table(Generic[entry_lib.ModelT]):
  """The models of one server, by key. Safe to use from several threads.

  Attributes:
    dormancy: of the server.
  """

  def __init__(self, dormancy: dormancy_lib.Dormancy):
    """Starts without a model."""
    self.dormancy = dormancy
    # Reentrant: a future that is done calls back at once.
    self._lock = threading.RLock()
    self._entries: dict[str, entry_lib.Entry[entry_lib.ModelT]] = {}

  def entries(self) -> dict[str, entry_lib.Entry[entry_lib.ModelT]]:
    """All models, a copy."""
    with self._lock:
      return dict(self._entries)

  def serving(self, key: str) -> entry_lib.Serving[entry_lib.ModelT]:
    """A model that serves.

    Raises:
      errors.NotFound: there is none; the message says what there is.
      errors.Unavailable: this server is dormant, and refuses early.
    """
    self.dormancy.check()
    entry = self._entries.get(key)
    if entry is not None and entry.state is entry_lib.State.LOADED:
      if entry.model is not None:
        return entry_lib.Serving(entry.spec, entry.model)
    known = ', '.join(
      k for k, e in self.entries().items() if e.state is entry_lib.State.LOADED
    )
    if entry is not None and entry.state is entry_lib.State.FAILED:
      why = f'failed: {entry.reason}'
    else:
      why = 'is still loading or already unloaded'
    raise errors.NotFound(f'{key} {why}. Available models: {known or "none"}')

  def held(self, key: str) -> futures.Future | None:
    """Where to wait for a model that does not serve; None: it will not.

    The future ends when it is worth while to ask `serving` again.

    Raises:
      errors.ResourceExhausted: too many requests wait for it.
    """
    with self._lock:
      entry = self._entries.get(key)
      if entry is not None and entry.state is entry_lib.State.LOADED:
        # It has begun to serve since the caller asked.
        serves: futures.Future = futures.Future()
        serves.set_result(None)
        return serves
      hold = None if entry is None else entry.hold
    return None if hold is None else hold.wait()

  def _known(self, key: str) -> entry_lib.Entry[entry_lib.ModelT]:
    if key not in self._entries:
      raise errors.NotFound(
        f'model_key {key!r} is not loaded here; loaded are:'
        f' {", ".join(self._entries) or "none"}'
      )
    return self._entries[key]

  def _set(self, key: str, **changes) -> None:
    self._entries[key] = dataclasses.replace(self._entries[key], **changes)

  def _check_wanted(self, key: str) -> None:
    """Raises NotFound if a model is to be unloaded, or gone, by now."""
    entry = self.entries().get(key)
    if entry is None or entry.state is entry_lib.State.UNLOADING:
      raise errors.NotFound(f'{key} was unloaded while it was being loaded')
