"""What a server keeps of each model, and of the requests that wait for one."""

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

# Seconds over which stock's GetStatus reports the rate of refusals.
_REFUSAL_SECS = 10.0
# A load that takes much longer than a request is no reason to ask every 10 ms.
_RETRY_SECS = 1.0


class State(enum.Enum):
  """Where a model stands."""

  LOADING = 'loading'
  LOADED = 'loaded'
  FAILED = 'failed'
  UNLOADING = 'unloading'


class Model(Protocol):
  """What the life cycle needs of a loaded model."""

  @property
  def admission_limit(self) -> int:
    """Requests of one method it holds before it refuses more."""

  def close(self, drain: bool) -> None:
    """Stops it; with `drain` after it has answered what it holds."""


ModelT = TypeVar('ModelT', bound=Model)


@dataclasses.dataclass(frozen=True)
class Spec:
  """One model to load.

  Attributes:
    model_path: registered name of the serving params.
    checkpoint_path: where the weights are.
    overrides: attribute of the params -> value as JSON.
    acls: data method -> name of the list of those who may call it.
  """

  model_path: str
  checkpoint_path: str
  overrides: Mapping[str, str]
  acls: Mapping[str, str]

  @classmethod
  def of(cls, request: modelet_pb2.LoadRequest) -> 'Spec':
    """Returns what a request asks for."""
    return cls(
      request.model_path,
      request.checkpoint_path,
      dict(request.overrides),
      dict(request.acls.items),
    )


class Hold:
  """Requests that wait while the weights of their model are replaced. Thread-safe.

  Where there is no room for the old weights and the new ones together, nobody
  can be answered for as long as the new ones take to load. One replica may be
  all there is, so requests wait here for the new ones instead of being refused:
  as many as the model's queue takes, and none of them beyond its deadline.
  """

  def __init__(self, key: str, limit: int):
    """Holds nobody yet.

    Args:
      key: of the model, for messages.
      limit: requests held before further ones are refused.
    """
    self._key = key
    self._limit = limit
    self._lock = threading.Lock()
    self._waiting: set[futures.Future] = set()
    self._released = False

  def wait(self) -> futures.Future:
    """Returns a future that is done, with None, when it is time to ask again.

    Cancelling it makes room for another request.

    Raises:
      errors.ResourceExhausted: as many requests as allowed are held.
    """
    future: futures.Future = futures.Future()
    with self._lock:
      if self._released:
        future.set_result(None)
      elif len(self._waiting) >= self._limit:
        raise errors.ResourceExhausted(
          f'Too many requests: {self._limit} wait until {self._key} is'
          ' reloaded, which is the limit (BATCH_SIZE times MAX_LIVE_BATCHES);'
          ' try again later',
          retry_after=_RETRY_SECS,
        )
      else:
        self._waiting.add(future)
        future.add_done_callback(self._done)
    return future

  def release(self) -> None:
    """Lets everybody go on, now and later."""
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
  """Whether this server can compute for new requests. Thread-safe.

  Stock Sax calls a server dormant whose accelerators were taken away. Such a
  server may hold requests until they come back, or with
  --early_reject_on_dormant refuse them at once for clients to go elsewhere.
  This server's devices stay. It is dormant once it was told to stop: without
  the flag it still answers what arrives until it has left its cell, with it
  such requests are refused at once.

  Attributes:
    reason: The reason why it is dormant; '' while it is active.
  """

  def __init__(
    self,
    early_reject: bool = False,
    clock: Callable[[], float] = time.monotonic,
  ):
    """Starts active.

    Args:
      early_reject: whether requests are refused while dormant.
      clock: monotonic time.
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
    """Refuses a request, if such are refused now.

    Raises:
      errors.Unavailable: the server is dormant, and refuses early.
    """
    if not self.reason or not self._early_reject:
      return
    with self._lock:
      self._forget()
      self._refused.append(self._clock())
    raise errors.Unavailable(
      f'this model server is dormant: {self.reason}; try another one'
    )

  def rate(self) -> float:
    """Returns the requests refused per second, over the last 10 s."""
    with self._lock:
      self._forget()
      return len(self._refused) / _REFUSAL_SECS

  def _forget(self) -> None:
    oldest = self._clock() - _REFUSAL_SECS
    while self._refused and self._refused[0] <= oldest:
      self._refused.popleft()


@dataclasses.dataclass(frozen=True)
class Entry(Generic[ModelT]):
  """One model as of now.

  Attributes:
    spec: what was asked for.
    state: where it stands.
    reason: why it failed, or why it serves older weights than it was asked
      to; empty otherwise.
    model: the servable; only LOADED ones serve.
    hold: where requests wait while it is reloaded.
    code: what a repeated load of one that failed is told with `reason`.
  """

  spec: Spec
  state: State
  reason: str = ''
  model: ModelT | None = None
  hold: Hold | None = None
  code: grpc.StatusCode = grpc.StatusCode.INTERNAL


class Serving(NamedTuple, Generic[ModelT]):
  """A model that serves, and what was asked for."""

  spec: Spec
  model: ModelT
