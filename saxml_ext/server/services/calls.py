"""Runs calls of the data services: their start, wait and end."""

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

# The timeout after which a slow reader of a stream is disconnected.
STALL_SECS = 600.0
# With texts of 4 MiB, gRPC's message limit, this number of texts needs 1 GiB.
# With usual prompts of 10 kB, their tokenization takes seconds.
_MOST_PREPARED = 256
_RETRY_SECS = 0.1
# The number of characters that would block the event loop for milliseconds.
_LONG = 2**16


class Call:
  """One call of a data method: finds its model, and counts its result.

  During the call, the model is not closed, see `Servable.close`. The call
  counts as answered if the block ends without an error, or after `succeeded` is
  called.

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
    """Prepares a call; `async with` begins it. For arguments, see `find`."""
    self._args = models, key, method, context, also
    self._context = context
    self._succeeded = False
    self.method = method

  async def __aenter__(self) -> 'Call':
    self.model = (await find(*self._args)).model
    self.settings = self.model.settings
    self._begin = time.monotonic()
    self.model.leases.enter()
    self.model.activity.begin(self._args[1], self.method)
    self.client = access.client_of(self._context)
    return self

  @property
  def deadline(self) -> float:
    return deadline(self._context)

  def check_admission(self, method: str) -> None:
    """Raises the scheduler's error if a request would be refused now."""
    self.model.scheduler.check_admission(method, self.client)

  def succeeded(self) -> None:
    """Marks the call as answered, even if it fails later."""
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
    is_answered = self._succeeded or error is None
    self.model.activity.end(not is_answered)
    if is_answered:
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
  """Returns a loaded model and its load request, for a call.

  If the model is being reloaded, the call waits.

  Args:
    models: The models of this server.
    key: The model's id.
    method: A method that the model must serve.
    context: The context of the call.
    also: Further methods to which the caller must have access.

  Raises:
    errors.NotFound: The model is neither loaded nor being reloaded.
    errors.ResourceExhausted: Too many calls already wait for the model.
    errors.DeadlineExceeded: The model was not reloaded before the deadline.
    errors.Unavailable: This server is dormant and refuses calls early.
    errors.InvalidArgument: The model does not serve the method.
    errors.PermissionDenied: An ACL does not allow the caller to use the method.
  """
  while True:
    try:
      serving = models.serving(key)
      break
    except errors.NotFound:
      reloaded = models.held(key)
      if reloaded is None:
        raise
    end = deadline(context)
    timeout = None if end == math.inf else end - time.monotonic()
    try:
      # A cancelled call also cancels the future, which makes room for another
      # call.
      await asyncio.wait_for(asyncio.wrap_future(reloaded), timeout)
    except TimeoutError:
      raise errors.DeadlineExceeded(
        f'the deadline passed while {key} was being reloaded'
      ) from None
  methods = serving.model.settings.methods
  if method not in methods:
    served = ', '.join(methods)
    raise errors.InvalidArgument(
      f'{key} does not serve {method}. Available: {served}'
    )
  for name in (method, *also):
    check_acl(serving.spec.acls, key, name, context)
  return serving


def check_acl(
  acls: Mapping[str, str],
  key: str,
  method: str,
  context: grpc.aio.ServicerContext,
) -> None:
  """Raises errors.PermissionDenied if an ACL does not allow the caller."""
  access.check(context, acls.get(method, ''), f'{method} of {key}')


def deadline(context: grpc.aio.ServicerContext) -> float:
  """Returns the call's deadline on the monotonic clock; inf without one."""
  remaining = context.time_remaining()
  return math.inf if remaining is None else time.monotonic() + remaining


async def run(in_place: bool, function: Callable[..., Any], *args) -> Any:
  """Calls a function, directly if it is fast, otherwise on a thread.

  A tokenizer takes about a millisecond per article and releases the interpreter
  lock. To parse ids from text takes a few dozen microseconds.
  """
  if in_place:
    return function(*args)
  return await asyncio.to_thread(function, *args)


async def write(context: grpc.aio.ServicerContext, message: Any) -> None:
  """Sends a message of a stream; waits until its reader has room for it.

  Raises:
    errors.DeadlineExceeded: The reader read nothing for `STALL_SECS`. gRPC's
      pings only detect lost readers. A live reader must not keep its messages
      in memory forever.
  """
  try:
    async with asyncio.timeout(STALL_SECS):
      await context.write(message)
  except TimeoutError as e:
    raise errors.DeadlineExceeded(
      f'the client read nothing of the stream for {STALL_SECS:g} s. Read it,'
      ' or cancel the call.'
    ) from e


class Preparation:
  """A limit on the prompts that one event loop prepares at a time.

  A tokenizer runs on a thread, without the interpreter lock. There are few such
  threads. Texts that wait for them use memory before any model's own limit
  applies.
  """

  def __init__(self, limit: int = _MOST_PREPARED):
    """Stores the maximum number of requests that are prepared at a time."""
    self._limit = limit
    self._held = 0

  async def run(
    self, in_place: bool, function: Callable[..., Any], *args: Any
  ) -> Any:
    """Calls a function, directly if it is fast, otherwise on a thread.

    Args:
      in_place: True if the function takes microseconds for a usual text, for
        example to parse ids.
      function: The function to call.
      *args: The arguments of the function, including texts.

    Returns:
      The result of the function.

    Raises:
      errors.ResourceExhausted: Too many requests are being prepared.
    """
    if in_place and all(len(a) < _LONG for a in args if isinstance(a, str)):
      return function(*args)
    if self._held >= self._limit:
      raise errors.ResourceExhausted(
        f'Too many requests: {self._held} are being tokenized, and the limit'
        f' of this server is {self._limit}. Try again later.',
        retry_after=_RETRY_SECS,
      )
    self._held += 1
    try:
      return await asyncio.to_thread(function, *args)
    finally:
      self._held -= 1


# The limit applies to this process, because a server is one process.
prepare = Preparation().run


@dataclasses.dataclass(frozen=True)
class Update:
  """The state of a request that is being answered.

  Attributes:
    state: The progress, or finally the result.
    is_last: True if this is the result.
  """

  state: Any
  is_last: bool


class Wakeups:
  """Lets coroutines of one event loop wait for futures of other threads.

  To wake an event loop from another thread costs a system call and a thread
  switch. This is as much as the rest of the work for a small request. So
  answers that are set together share one wakeup.
  """

  def __init__(self, loop: asyncio.AbstractEventLoop):
    """Stores the event loop."""
    self._loop = loop
    self._answered: collections.deque[asyncio.Future] = collections.deque()
    self._waking = False

  async def wait(self, future: futures.Future) -> Any:
    """Returns the result of a future, or raises its exception.

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

  async def follow(self, begin: Begin) -> AsyncGenerator[Update, None]:
    """Yields the states of a request while it is answered.

    Only the newest progress is kept until the reader asks for it. So a slow
    reader misses some progress and delays no other request.

    Args:
      begin: A function that submits the request. It gets a function to call
        with the progress, on any thread. It returns the future of the result.

    Raises:
      Exception: The exception of the future. Closing the iterator, or
        cancelling the coroutine that reads it, cancels the future.
    """
    # There is at most one progress and one waiter. Other threads write, and the
    # event loop reads.
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
          yield Update(newest.pop(), is_last=False)
      yield Update(future.result(), is_last=True)
    finally:
      future.cancel()

  def _wake(self, waiter: asyncio.Future) -> None:
    # Any thread may call this. It appends to the deque before it sets the flag.
    # `_deliver` clears the flag before it reads the deque. So no waiter is
    # missed, and the worst case is an unnecessary wakeup.
    self._answered.append(waiter)
    if not self._waking:
      self._waking = True
      self._loop.call_soon_threadsafe(self._deliver)

  def _deliver(self) -> None:
    self._waking = False
    while self._answered:
      waiter = self._answered.popleft()
      if not waiter.done():  # A cancelled waiter is done.
        waiter.set_result(None)
