"""Status codes for what the methods of an asyncio servicer raise."""

from collections.abc import Awaitable, Callable
import functools
from typing import Any

from absl import logging
import grpc

from saxml_ext.common import errors

_Method = Callable[[Any, Any, Any], Awaitable[Any]]


def method(function: _Method) -> _Method:
  """Decorates a unary method of a `grpc.aio` servicer.

  A `SaxError` becomes the status of the call; anything else INTERNAL, with its
  traceback in the log. A decorator and not an interceptor, because grpc.aio
  runs interceptors on every call as tasks of their own.
  """

  @functools.wraps(function)
  async def guarded(self: Any, request: Any, context: Any) -> Any:
    try:
      return await function(self, request, context)
    except errors.SaxError as e:
      await context.abort(e.code, e.message)
    except Exception as e:  # pylint: disable=broad-exception-caught
      if isinstance(e, grpc.aio.AbortError):
        raise
      logging.exception('unexpected error in %s', function.__name__)
      await context.abort(
          grpc.StatusCode.INTERNAL, f'{type(e).__name__}: {e}'
      )

  return guarded
