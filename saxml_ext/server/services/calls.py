"""What all methods of the data services begin and end with."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
import math
import time
import types
from typing import Any

import grpc

from saxml_ext.common import errors
from saxml_ext.common.security import access
from saxml_ext.server.lifecycle import entry as entry_lib
from saxml_ext.server.lifecycle import lifecycle
from saxml_ext.server.loading import servable as servable_lib
from saxml_ext.server.services import model_lookup
from saxml_ext.server.services import preparation

_PREPARATION = preparation.Preparation()  # Of this process, which is a server.

# A reader of a stream may be slow, but is given up after so long.
STALL_SECS = 600.0


async def find(
  models: lifecycle.Models[servable_lib.Servable],
  key: str,
  method: str,
  context: grpc.aio.ServicerContext,
  also: Sequence[str] = (),
) -> servable_lib.Servable:
  """Returns the model for a call of a method; see `find_entry`."""
  return (await find_entry(models, key, method, context, also)).model


async def find_entry(
  models: lifecycle.Models[servable_lib.Servable],
  key: str,
  method: str,
  context: grpc.aio.ServicerContext,
  also: Sequence[str] = (),
) -> entry_lib.Serving[servable_lib.Servable]:
  """Returns a loaded model, with what it was loaded of, for a call.

  Args:
    models: of this server.
    key: of the model.
    method: that it must have.
    context: of the call.
    also: methods that the caller must have access to besides.

  Raises:
    errors.NotFound, errors.Unavailable, errors.ResourceExhausted,
    errors.DeadlineExceeded: it does not serve, see `holding`.
    errors.InvalidArgument: it does not have the method.
    errors.PermissionDenied: an ACL guards the method.
  """
  found = await model_lookup.serving(models, key, deadline(context))
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
  """The call's deadline on the monotonic clock; inf without one."""
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


async def prepare(in_place: bool, function: Callable[..., Any], *args) -> Any:
  """`run` for what comes before a model's own bound, see `preparation`.

  Raises:
    errors.ResourceExhausted: too much is in preparation.
  """
  return await _PREPARATION.run(in_place, function, *args)


async def write(context: grpc.aio.ServicerContext, message: Any) -> None:
  """Sends a message of a stream; waits until its reader has room for it.

  Raises:
    errors.DeadlineExceeded: the reader took nothing for `STALL_SECS`. It may
      live, for gRPC's pings find those who do not, but it is not to hold what
      was made for it for ever.
  """
  try:
    async with asyncio.timeout(STALL_SECS):
      await context.write(message)
  except TimeoutError as e:
    raise errors.DeadlineExceeded(
      f'nothing of the stream was read for {STALL_SECS:g} s; read it, or cancel'
      ' the call'
    ) from e


class Timer:
  """Counts a call as answered after so long, or as failed.

  While it counts, the model is not closed, see `Servable.close`.
  """

  def __init__(self, model: servable_lib.Servable, method: str):
    self._leases = model.leases
    self._stats = model.method_stats[method]
    self._begin = time.monotonic()
    self._succeeded = False

  def __enter__(self) -> 'Timer':
    self._leases.enter()
    return self

  def succeeded(self) -> None:
    """To be called once the answer is ready."""
    self._succeeded = True

  def __exit__(
    self,
    kind: type[BaseException] | None,
    error: BaseException | None,
    traceback: types.TracebackType | None,
  ) -> None:
    del kind, traceback
    self._leases.leave()
    if self._succeeded:
      self._stats.succeeded(time.monotonic() - self._begin)
    else:
      self._stats.failed(errors.code_name(error))
