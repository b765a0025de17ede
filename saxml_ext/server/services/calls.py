"""Calls of the data services: how they begin, wait for an engine, and end."""

import asyncio
import collections
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent import futures
import dataclasses
import math
import time
import types
from typing import Any, TypeAlias

import grpc

from saxml_ext.common import errors
from saxml_ext.common.security import access
from saxml_ext.server.lifecycle import entry as entry_lib
from saxml_ext.server.lifecycle import lifecycle
from saxml_ext.server.loading import servable as servable_lib

Models: TypeAlias = lifecycle.Models[servable_lib.Servable]
Begin: TypeAlias = Callable[[Callable[[Any], None]], futures.Future]

# A reader of a stream may be slow, but is given up after so long.
STALL_SECS = 600.0
# Texts of 4 MiB, gRPC's limit of a message, take 1 GiB then; usual prompts of
# 10 kB take seconds to tokenize.
_MOST_PREPARED = 256
_RETRY_SECS = 0.1
# Characters that would hold up the event loop for milliseconds.
_LONG = 2**16


class Call:
  """One call of a data method: finds its model, and counts how it ends.

  While it lasts, the model is not closed, see `Servable.close`. It counts as
  answered after a block without an error, or once `succeeded` was called.

  Attributes:
    model: The model.
    settings: The model's settings.
    method: The data method.
    client: The caller.
    deadline: The call's deadline on the monotonic clock; inf without one.
  """

  def __init__(
    self,
    models: Models,
    key: str,
    method: str,
    context: grpc.aio.ServicerContext,
    also: Sequence[str] = (),
  ):
    """Prepares; `async with` begins. See `find` for the arguments."""
    self._wanted = models, key, method, context, also
    self._context = context
    self._succeeded = False
    self.method = method

  async def __aenter__(self) -> 'Call':
    self.model = (await find(*self._wanted)).model
    self.settings = self.model.settings
    self._begin = time.monotonic()
    self.model.leases.enter()
    self.client = access.client_of(self._context)
    return self

  @property
  def deadline(self) -> float:
    return deadline(self._context)

  def check_admission(self, method: str) -> None:
    """Raises what the scheduler would for a request of a method."""
    self.model.scheduler.check_admission(method, self.client)

  def succeeded(self) -> None:
    """Marks the call as answered, whatever happens after it."""
    self._succeeded = True

  async def __aexit__(
    self,
    kind: type[BaseException] | None,
    error: BaseException | None,
    traceback: types.TracebackType | None,
  ) -> None:
    del kind, traceback
    self.model.leases.leave()
    stats = self.model.method_stats[self.method]
    if self._succeeded or error is None:
      stats.succeeded(time.monotonic() - self._begin)
    else:
      stats.failed(errors.code_name(error))


async def find(
  models: Models,
  key: str,
  method: str,
  context: grpc.aio.ServicerContext,
  also: Sequence[str] = (),
) -> entry_lib.Serving[servable_lib.Servable]:
  """Returns a loaded model, and what it was loaded from, for a call.

  A call of a model that is being reloaded waits.

  Args:
    models: The models of this server.
    key: The model's id.
    method: A method that it must have.
    context: The call.
    also: Further methods that the caller must have access to.

  Raises:
    errors.NotFound: the model does not serve and is not being reloaded.
    errors.ResourceExhausted: too many calls wait for it already.
    errors.DeadlineExceeded: it was not reloaded in time.
    errors.Unavailable: this server is dormant, and refuses early.
    errors.InvalidArgument: it does not have the method.
    errors.PermissionDenied: an ACL guards the method.
  """
  while True:
    try:
      found = models.serving(key)
      break
    except errors.NotFound:
      reloaded = models.held(key)
      if reloaded is None:
        raise
    end = deadline(context)
    timeout = None if end == math.inf else end - time.monotonic()
    try:
      # Ends the future if the call is cancelled, which makes room for another.
      await asyncio.wait_for(asyncio.wrap_future(reloaded), timeout)
    except TimeoutError:
      raise errors.DeadlineExceeded(
        f'the deadline passed while {key} was being reloaded'
      ) from None
  methods = found.model.settings.methods
  if method not in methods:
    served = ', '.join(methods)
    raise errors.InvalidArgument(
      f'{key} does not serve {method}; it serves {served}'
    )
  for each in (method, *also):
    check_acl(found.spec.acls, key, each, context)
  return found


def check_acl(
  acls: Mapping[str, str],
  key: str,
  method: str,
  context: grpc.aio.ServicerContext,
) -> None:
  """Raises errors.PermissionDenied if an ACL keeps the caller out."""
  access.check(context, acls.get(method, ''), f'{method} of {key}')


def deadline(context: grpc.aio.ServicerContext) -> float:
  """Returns the call's deadline on the monotonic clock; inf without one."""
  remaining = context.time_remaining()
  return math.inf if remaining is None else time.monotonic() + remaining


async def run(in_place: bool, function: Callable[..., Any], *args) -> Any:
  """Calls a function, on a thread unless it is quick enough to do in place.

  A tokenizer takes about a millisecond for an article and lets go of the
  interpreter meanwhile; ids as text are read in a few dozen microseconds.
  """
  if in_place:
    return function(*args)
  return await asyncio.to_thread(function, *args)


async def write(context: grpc.aio.ServicerContext, message: Any) -> None:
  """Sends a message of a stream; waits until its reader has room for it.

  Raises:
    errors.DeadlineExceeded: the reader took nothing for `STALL_SECS`. It may
      live, because gRPC's pings find those that do not, but it must not hold
      what was made for it for ever.
  """
  try:
    async with asyncio.timeout(STALL_SECS):
      await context.write(message)
  except TimeoutError as e:
    raise errors.DeadlineExceeded(
      f'nothing of the stream was read for {STALL_SECS:g} s; read it, or cancel'
      ' the call'
    ) from e


class Preparation:
  """A limit on the prompts that one event loop prepares at a time.

  A tokenizer runs on a thread that lets go of the interpreter meanwhile. These
  threads are few, and what waits for them is held in memory before any model's
  own limit applies.
  """

  def __init__(self, limit: int = _MOST_PREPARED):
    """Takes the most requests that are prepared at a time."""
    self._limit = limit
    self._held = 0

  async def run(
    self, in_place: bool, function: Callable[..., Any], *args: Any
  ) -> Any:
    """Calls a function, on a thread unless it is quick enough to do in place.

    Args:
      in_place: True if it takes microseconds for a usual text, as reading ids
        does.
      function: The function.
      *args: Its arguments, texts among them.

    Returns:
      What it returns.

    Raises:
      errors.ResourceExhausted: too much is in preparation.
    """
    if in_place and all(len(a) < _LONG for a in args if isinstance(a, str)):
      return function(*args)
    if self._held >= self._limit:
      raise errors.ResourceExhausted(
        f'Too many requests: {self._held} are being tokenized, and'
        f' the limit of this server is {self._limit}; try again later',
        retry_after=_RETRY_SECS,
      )
    self._held += 1
    try:
      return await asyncio.to_thread(function, *args)
    finally:
      self._held -= 1


# The limit of this process, which is a server.
prepare = Preparation().run


@dataclasses.dataclass(frozen=True)
class News:
  """The state of a request that is being answered.

  Attributes:
    state: Its progress, or at the end its result.
    is_last: True if this is the result.
  """

  state: Any
  is_last: bool


class Wakeups:
  """Lets coroutines of one event loop wait for other threads' futures.

  To wake an event loop from another thread costs a system call and a switch of
  threads, as much as all else that is done for a small request. Answers that
  are given together share one.
  """

  def __init__(self, loop: asyncio.AbstractEventLoop):
    """Takes the event loop."""
    self._loop = loop
    self._answered: collections.deque[asyncio.Future] = collections.deque()
    self._waking = False

  async def wait(self, future: futures.Future) -> Any:
    """Returns the result of a future; raises what it raises.

    Cancelling the coroutine cancels the future.
    """
    waiter = self._loop.create_future()
    future.add_done_callback(lambda _: self._wake(waiter))
    try:
      await waiter
    except asyncio.CancelledError:
      future.cancel()
      raise
    return future.result()

  async def follow(self, begin: Begin) -> AsyncGenerator[News, None]:
    """Yields the states of a request while it is answered.

    Only the newest progress is kept until it is asked for, so that a reader who
    is slow misses some and delays nobody.

    Args:
      begin: Submits the request. It gets the function to call with its
        progress, on any thread, and returns the future of its result.

    Raises:
      Exception: what the future raises. Closing the iterator, or cancelling the
        coroutine that reads it, cancels the future.
    """
    # At most one of each; other threads write, the loop's takes.
    newest: collections.deque[Any] = collections.deque(maxlen=1)
    waiter = self._loop.create_future()

    def on_progress(progress: Any) -> None:
      newest.append(progress)
      self._wake(waiter)

    future = begin(on_progress)
    future.add_done_callback(lambda _: self._wake(waiter))
    try:
      while not future.done():
        await waiter
        waiter = self._loop.create_future()
        if newest and not future.done():
          yield News(newest.pop(), is_last=False)
      yield News(future.result(), is_last=True)
    finally:
      future.cancel()

  def _wake(self, waiter: asyncio.Future) -> None:
    # On any thread. First the deque, then the flag; `_deliver` the other way
    # round: so none is forgotten, at worst the loop wakes once in vain.
    self._answered.append(waiter)
    if not self._waking:
      self._waking = True
      self._loop.call_soon_threadsafe(self._deliver)

  def _deliver(self) -> None:
    self._waking = False
    while self._answered:
      waiter = self._answered.popleft()
      if not waiter.done():  # Else its coroutine was cancelled.
        waiter.set_result(None)
