"""Errors as the OpenAI API has them, and what they are over gRPC."""

import dataclasses
import math
import re
from typing import Any

import grpc

from saxml_ext.common import errors
from saxml_ext.common import request_options

# What a client is told to wait where the cell names no time.
_DEFAULT_RETRY_SECONDS = 1.0

_Code = grpc.StatusCode
_REQUEST, _SERVER = 'invalid_request_error', 'server_error'
# HTTP's status, and the type and code of OpenAI's error object.
_BY_CODE: dict[grpc.StatusCode, tuple[int, str, str | None]] = {
  _Code.INVALID_ARGUMENT: (400, _REQUEST, None),
  _Code.OUT_OF_RANGE: (400, _REQUEST, None),
  _Code.UNAUTHENTICATED: (401, 'authentication_error', 'invalid_api_key'),
  _Code.PERMISSION_DENIED: (403, 'permission_error', None),
  _Code.NOT_FOUND: (404, _REQUEST, 'model_not_found'),
  _Code.ALREADY_EXISTS: (409, _REQUEST, None),
  _Code.ABORTED: (409, _SERVER, None),
  _Code.RESOURCE_EXHAUSTED: (429, 'rate_limit_error', 'rate_limit_exceeded'),
  # nginx's number for a client that did not wait for its answer.
  _Code.CANCELLED: (499, _SERVER, 'cancelled'),
  _Code.UNIMPLEMENTED: (501, _SERVER, 'not_implemented'),
  _Code.UNAVAILABLE: (503, _SERVER, 'unavailable'),
  # The cell has no replica that could answer, or no admin server.
  _Code.FAILED_PRECONDITION: (503, _SERVER, 'unavailable'),
  _Code.DEADLINE_EXCEEDED: (504, _SERVER, 'timeout'),
}
_UNKNOWN = (500, _SERVER, None)
_RETRIED = frozenset({429, 503})


@dataclasses.dataclass(eq=False)
class Problem(Exception):
  """An answer that is an error.

  Attributes:
    status: The status of HTTP.
    message: The text for people.
    kind: OpenAI's `type`.
    code: OpenAI's `code`.
    param: The parameter at fault.
    retry_after: Seconds; None if trying again is of no use.
  """

  status: int
  message: str
  kind: str = _REQUEST
  code: str | None = None
  param: str | None = None
  retry_after: float | None = None

  def body(self) -> dict[str, Any]:
    """Returns the JSON object of the answer."""
    return {
      'error': {
        'message': self.message,
        'type': self.kind,
        'param': self.param,
        'code': self.code,
      }
    }

  def headers(self) -> dict[str, str]:
    """Returns the headers that say when to try again, or not to.

    Retry-After counts in whole seconds; the openai package reads milliseconds
    from retry-after-ms first, and x-should-retry.
    """
    if self.retry_after is not None:
      return {
        'retry-after': str(max(1, math.ceil(self.retry_after))),
        'retry-after-ms': str(max(1, round(1e3 * self.retry_after))),
      }
    # The openai package repeats whatever fails with 409 or from 500 on.
    if self.status == 409 or self.status >= 500:
      return {'x-should-retry': 'false'}
    return {}


class BadRequest(Problem):
  """The request can never succeed as it is."""

  def __init__(self, message: str, param: str | None = None):
    super().__init__(400, message, param=param)


# How the cell's messages begin that are about a setting of a request.
_ABOUT = re.compile(r'(?:the )?([a-z_]+) (?:is|has|have) ')
# A setting of the cell, by its name there -> the parameter of a request.
_PARAMETERS = {'prompt': 'prompt'} | {
  name: option.http
  for option in request_options.OPTIONS
  for name in (option.engine, option.completion)
}


def _param(error: errors.SaxError) -> str | None:
  """Returns the parameter at fault, as far as the message begins with it."""
  found = _ABOUT.match(error.message)
  return _PARAMETERS.get(found[1]) if found else None


def of(error: errors.SaxError) -> Problem:
  """Returns the answer for an error of the cell or of its client library."""
  status, kind, code = _BY_CODE.get(error.code, _UNKNOWN)
  retry_after = None
  if status in _RETRIED:
    retry_after = error.retry_after or _DEFAULT_RETRY_SECONDS
  param = _param(error) if status == 400 else None
  return Problem(status, error.message, kind, code, param, retry_after)


def too_busy(message: str) -> Problem:
  """Refuses a request that this process has no room for."""
  return of(errors.ResourceExhausted(message))


def model_not_found(name: str, cell: str) -> Problem:
  """Returns the error for a model that the cell does not publish."""
  return Problem(
    404,
    f'model {name!r} is not published in the cell {cell}; see /v1/models',
    code='model_not_found',
    param='model',
  )
