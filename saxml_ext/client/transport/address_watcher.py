"""Keeps the addresses of a model's replicas up to date in the background."""

from collections.abc import Callable
import math
import threading
import time
import weakref

from saxml_ext.client.transport import admin_client
from saxml_ext.client.transport import blocking
from saxml_ext.common import errors
from saxml_ext.protobuf import admin_pb2

# A model without a server for this many seconds counts as having none. Shorter
# gaps are normal: servers join a new admin server within 3 s.
_NO_SERVER_SECONDS = 5.0


class WaitPolicy:
  """Decides from the admin server's list if waiting for a replica helps."""

  def __init__(self):
    self._without_server_since: float | None = None

  def judge(self, detail: admin_client.ModelDetail, now: float) -> str:
    """Returns why waiting for a replica does not help, or "" if it may help.

    Waiting may help while a replica is loading, or while its server restarts.
    It does not help in these cases: loading failed on every server, no replica
    is wanted, or no server has taken the model for some time.

    Args:
      detail: The model, as listed now.
      now: The monotonic time, in seconds.
    """
    if not detail.max_replicas:
      return (
        'it is published with 0 replicas. Request some with `saxutil update'
        f' -replicas=1 {detail.model_id}`'
      )
    held = [r for r in detail.replicas if r.address]
    if any(r.status != admin_client.FAILED for r in held):
      self._without_server_since = None
      return ''
    if held:
      return _text(detail)
    if not detail.replicas:  # Stock admin servers do not report replicas.
      return ''
    if self._without_server_since is None:
      self._without_server_since = now
    if now - self._without_server_since < _NO_SERVER_SECONDS:
      return ''
    return _text(detail)


def _text(detail: admin_client.ModelDetail) -> str:
  return '; '.join(map(str, detail.replicas))


# Long polls are renewed at this interval, in seconds, to detect a lost host.
_POLL_SECONDS = 60.0
# Without replicas, the admin server is asked after this many seconds whether
# waiting helps. The interval doubles each time.
_FIRST_LOOK_SECONDS = 0.25
_MAX_LOOK_SECONDS = 4.0
_LOOK_TIMEOUT = 2.0
# An error is repeated to callers for this many seconds before the admin server
# is asked again.
_STICKY_SECONDS = 1.0


class AddressSet:
  """A model's addresses, built from a series of WatchLoc responses."""

  def __init__(self):
    self.admin_server_id = ''
    self.seqno = 0
    self.addresses: frozenset[str] = frozenset()

  def request(self, model_id: str) -> admin_pb2.WatchLocRequest:
    """Returns the request for the next changes."""
    return admin_pb2.WatchLocRequest(
      model_id=model_id, admin_server_id=self.admin_server_id, seqno=self.seqno
    )

  def apply(self, response: admin_pb2.WatchLocResponse) -> list[str]:
    """Applies a response.

    Returns:
      The changes in order: "Reset", "+ host:port" or "- host:port".
    """
    result, changes = response.result, []
    addresses = set(self.addresses)
    # A different server answers from the start of its own log.
    is_other = self.admin_server_id not in ('', response.admin_server_id)
    if result.has_fullset or is_other:
      changes.append('Reset')
      changes.extend(f'+ {value}' for value in sorted(result.values))
      addresses = set(result.values)
    for mutation in result.changelog:
      if mutation.WhichOneof('kind') == 'addition':
        addresses.add(mutation.addition)
        changes.append(f'+ {mutation.addition}')
      else:
        addresses.discard(mutation.deletion)
        changes.append(f'- {mutation.deletion}')
    self.admin_server_id = response.admin_server_id
    self.seqno = result.next_seqno
    self.addresses = frozenset(addresses)
    return changes


class AddressWatcher:
  """Watches one model, starting with its first use. Thread-safe.

  Attributes:
    model_id: The model id, "/sax/<cell>/<model>".
    answered: True once a replica has answered a request. Users of the watcher
      set it. From then on, `addresses` waits even if all replicas are gone.
  """

  def __init__(self, admin: admin_client.AdminClient, model_id: str):
    """Creates a watcher; `admin` must use the blocking transport."""
    self._admin = admin
    self.model_id = model_id
    self.answered = False
    self._changed = threading.Condition()
    self._running = False
    self._addresses: frozenset[str] = frozenset()
    self._error: errors.SaxError | None = None
    self._error_time = 0.0
    self._why = ''
    self._waiting: list[Callable[[], None]] = []

  def __str__(self) -> str:
    state = self._error or ', '.join(sorted(self._addresses)) or 'no replica'
    return f'{self.model_id}: {state}'

  def addresses(self, timeout: float | None) -> frozenset[str]:
    """Returns the addresses of the replicas, "host:port".

    Args:
      timeout: The time to wait for the first address, in seconds; None for no
        limit.

    Raises:
      Unavailable: No replica is known at the moment.
      FailedPrecondition: No replica is known, and waiting does not help (see
        `WaitPolicy.judge`). This is not raised once a replica has answered.
      SaxError: The admin server gave a final answer, for example NotFound.
    """
    known = self._addresses
    if known:  # The thread runs, because it clears the addresses at its end.
      return known
    with self._changed:
      self._start()
      self._changed.wait_for(lambda: self._addresses or self._error, timeout)
      if self._error:
        raise self._error
      if not self._addresses:
        cause = self._admin.last_error
        why = cause.message if cause else self._why
        raise errors.Unavailable(
          f'no replica of {self.model_id} is known'
          + (f' ({why})' if why else '')
        )
      return self._addresses

  def forgive(self) -> None:
    """Forgets an error, so that the next caller asks the admin server again."""
    with self._changed:
      self._error_time = -math.inf

  def count(self) -> int:
    """Returns the number of replicas that are known now."""
    return len(self._addresses)

  def call_when_known(self, function: Callable[[], None]) -> None:
    """Calls `function` as soon as `addresses` would return without waiting.

    The function runs on this watcher's thread, or in the caller's thread.
    """
    with self._changed:
      self._start()
      if not self._addresses and not self._error:
        self._waiting.append(function)
        return
    function()

  def _start(self) -> None:
    if self._running:
      return
    if self._error and time.monotonic() < self._error_time + _STICKY_SECONDS:
      return
    self._error = None
    self._running = True
    name = f'watch {self.model_id}'
    threading.Thread(target=self._run, name=name, daemon=True).start()

  def _run(self) -> None:
    known, policy = AddressSet(), WaitPolicy()
    look_after = _FIRST_LOOK_SECONDS
    try:
      while True:
        try:
          response = blocking.run(
            self._admin.call(
              'WatchLoc',
              known.request(self.model_id),
              _POLL_SECONDS if known.addresses else look_after,
            )
          )
        except errors.DeadlineExceeded:
          if not known.addresses:
            self._look(policy)
            look_after = min(2 * look_after, _MAX_LOOK_SECONDS)
          continue
        look_after = _FIRST_LOOK_SECONDS
        known.apply(response)
        removed = self._addresses - known.addresses
        with self._changed:
          self._addresses = known.addresses
        self._notify()
        for transport in list(_transports):
          for address in removed:
            transport.probe(address)
    except errors.SaxError as e:
      self._fail(e)
    except Exception as e:  # pylint: disable=broad-exception-caught
      # Callers must get an error, because this thread ends.
      self._fail(errors.Internal(f'{type(e).__name__}: {e}'))

  def _look(self, policy: WaitPolicy) -> None:
    """Raises FailedPrecondition if waiting for a replica does not help."""
    try:
      published = blocking.run(
        self._admin.list_one(self.model_id, _LOOK_TIMEOUT)
      )
    except errors.DeadlineExceeded:
      return  # A new admin server may know more.
    self._why = policy.judge(
      admin_client.detail_of(published), time.monotonic()
    )
    if self._why and not self.answered:
      raise errors.FailedPrecondition(
        f'no replica of {self.model_id} can answer: {self._why}'
      )

  def _fail(self, error: errors.SaxError) -> None:
    with self._changed:
      self._addresses = frozenset()
      self._error = error
      self._error_time = time.monotonic()
      self._running = False
    self._notify()

  def _notify(self) -> None:
    with self._changed:
      self._changed.notify_all()
      if not self._addresses and not self._error:
        return
      waiting, self._waiting = self._waiting, []
    for function in waiting:
      function()


# The transports that may have open requests to an address that is gone.
_transports: weakref.WeakSet[blocking.Transport] = weakref.WeakSet(
  [blocking.TRANSPORT]
)


def tell(transport: blocking.Transport) -> None:
  """Registers a transport to probe addresses that leave a model's list."""
  _transports.add(transport)


_lock = threading.Lock()
_watchers: dict[tuple[admin_client.AdminClient, str], AddressWatcher] = {}


def get(admin: admin_client.AdminClient, model_id: str) -> AddressWatcher:
  """Returns this process's watcher of a model "/sax/<cell>/<model>"."""
  with _lock:
    key = admin, model_id
    if key not in _watchers:
      _watchers[key] = AddressWatcher(admin, model_id)
    return _watchers[key]


def forgive(model_id: str) -> None:
  """Makes watchers of a model that was just published ask again."""
  for watcher in all_watchers():
    if watcher.model_id == model_id:
      watcher.forgive()


def all_watchers() -> list[AddressWatcher]:
  """Returns this process's watchers."""
  with _lock:
    return list(_watchers.values())
