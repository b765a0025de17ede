"""The records of a server for each model and for requests that wait for one."""

import collections
from collections.abc import Callable, Mapping
from concurrent import futures
import dataclasses
import enum
import threading
import time
from typing import Generic, NamedTuple, Protocol, TypeVar

import grpc

from saxml_ext.common import errors
from saxml_ext.protobuf import modelet_pb2

# The window over which stock Sax's GetStatus reports the rate of refusals.
_REFUSAL_SECS = 10.0
# A load takes much longer than a request, so clients need not retry every 10
# ms.
_RETRY_SECS = 1.0


class State(enum.Enum):
  """The state of a model."""

  LOADING = 'loading'
  LOADED = 'loaded'
  FAILED = 'failed'
  UNLOADING = 'unloading'


class Model(Protocol):
  """The members of a loaded model that the life cycle uses."""

  @property
  def admission_limit(self) -> int:
    """The maximum number of pending requests per method."""

  def close(self, drain: bool) -> None:
    """Stops the model; with `drain`, it first answers its pending requests."""


ModelT = TypeVar('ModelT', bound=Model)


@dataclasses.dataclass(frozen=True)
class Spec:
  """A model to load.

  Attributes:
    model_path: The registered name of the serving params.
    checkpoint_path: The path of the weights.
    overrides: The overridden attributes of the params and their values as JSON.
    acls: The name of the access control list (ACL) of each data method.
  """

  model_path: str
  checkpoint_path: str
  overrides: Mapping[str, str]
  acls: Mapping[str, str]

  @classmethod
  def from_request(cls, request: modelet_pb2.LoadRequest) -> 'Spec':
    """Returns the model that a request asks to load."""
    return cls(
      request.model_path,
      request.checkpoint_path,
      dict(request.overrides),
      dict(request.acls.items),
    )


class Hold:
  """Holds requests while their model's weights are replaced. Thread-safe.

  If the old and the new weights do not fit into memory together, no request can
  be answered until the new weights are loaded. There may be no other replica.
  So requests wait here instead of being refused. Their number is limited like
  the model's queue, and none waits beyond its deadline.
  """

  def __init__(self, key: str, limit: int):
    """Creates an object that holds no requests.

    Args:
      key: The key of the model, for messages.
      limit: The maximum number of requests that wait.
    """
    self._key = key
    self._limit = limit
    self._lock = threading.Lock()
    self._waiting: set[futures.Future] = set()
    self._released = False

  def wait(self) -> futures.Future:
    """Returns a future that is set to None when the caller should retry.

    Cancelling it makes room for another request.

    Raises:
      errors.ResourceExhausted: The limit of waiting requests is reached.
    """
    future: futures.Future = futures.Future()
    with self._lock:
      if self._released:
        future.set_result(None)
      elif len(self._waiting) >= self._limit:
        raise errors.ResourceExhausted(
          f'Too many requests: {self._limit} wait until {self._key} is'
          ' reloaded, which is the limit (BATCH_SIZE times MAX_LIVE_BATCHES).'
          ' Try again later.',
          retry_after=_RETRY_SECS,
        )
      else:
        self._waiting.add(future)
        future.add_done_callback(self._done)
    return future

  def release(self) -> None:
    """Lets all requests continue, now and later."""
    with self._lock:
      self._released = True
      waiting = list(self._waiting)
    for future in waiting:
      if future.set_running_or_notify_cancel():
        future.set_result(None)

  def _done(self, future: futures.Future) -> None:
    with self._lock:
      self._waiting.discard(future)


class Dormancy:
  """The state of a server that may become dormant. Thread-safe.

  In stock Sax, a server is dormant while its accelerators are taken away. Such
  a server may hold requests until the accelerators come back. With
  --early_reject_on_dormant, it refuses requests at once, so that clients use
  another server.

  This server never loses its devices. It becomes dormant when it is asked to
  stop. Without the flag, it still answers requests until it has left its cell.
  With the flag, it refuses them at once.

  Attributes:
    reason: The reason why the server is dormant; '' while it is active.
  """

  def __init__(
    self,
    early_reject: bool = False,
    clock: Callable[[], float] = time.monotonic,
  ):
    """Creates the object for an active server.

    Args:
      early_reject: True if requests are refused while the server is dormant.
      clock: The monotonic clock.
    """
    self._early_reject = early_reject
    self._clock = clock
    self._lock = threading.Lock()
    self._refused: collections.deque[float] = collections.deque()
    self.reason = ''

  def begin(self, reason: str) -> None:
    """Makes the server dormant."""
    self.reason = reason

  def check(self) -> None:
    """Refuses a request if the server is dormant and rejects early.

    Raises:
      errors.Unavailable: The server is dormant and refuses requests early.
    """
    if not self.reason or not self._early_reject:
      return
    with self._lock:
      self._drop_old()
      self._refused.append(self._clock())
    raise errors.Unavailable(
      f'this model server is dormant: {self.reason}. Use another one.'
    )

  def rate(self) -> float:
    """Returns the refused requests per second, over the last 10 s."""
    with self._lock:
      self._drop_old()
      return len(self._refused) / _REFUSAL_SECS

  def _drop_old(self) -> None:
    oldest = self._clock() - _REFUSAL_SECS
    while self._refused and self._refused[0] <= oldest:
      self._refused.popleft()


@dataclasses.dataclass(frozen=True)
class Entry(Generic[ModelT]):
  """The current state of one model.

  Attributes:
    spec: The model that was requested.
    state: The state of the model.
    reason: The reason why it failed, or why it still serves older weights; the
      progress of a load; otherwise empty.
    model: The servable; a model serves only in state LOADED.
    hold: The requests that wait while the model is reloaded.
    code: The status code that a repeated load of a failed model returns with
      `reason`.
  """

  spec: Spec
  state: State
  reason: str = ''
  model: ModelT | None = None
  hold: Hold | None = None
  code: grpc.StatusCode = grpc.StatusCode.INTERNAL


class Serving(NamedTuple, Generic[ModelT]):
  """A model that serves, and the request with which it was loaded."""

  spec: Spec
  model: ModelT
