"""Maps gRPC errors to errors of the OpenAI API."""

from collections.abc import Sequence
import dataclasses
import math
import re
from typing import Any

import grpc

from saxml_ext.common import errors
from saxml_ext.common import request_options

# Messages show at most this many names of models, and long names shortened.
_MOST_NAMES, _MOST_CHARACTERS = 8, 64
# Clients get this retry delay, in seconds, if the cell reports none.
_DEFAULT_RETRY_SECONDS = 1.0

_Code = grpc.StatusCode
_REQUEST, _SERVER = 'invalid_request_error', 'server_error'
# Maps each code to the HTTP status, and the type and code of OpenAI's error
# object.
_BY_CODE: dict[grpc.StatusCode, tuple[int, str, str | None]] = {
  _Code.INVALID_ARGUMENT: (400, _REQUEST, None),
  _Code.OUT_OF_RANGE: (400, _REQUEST, None),
  _Code.UNAUTHENTICATED: (401, 'authentication_error', 'invalid_api_key'),
  _Code.PERMISSION_DENIED: (403, 'permission_error', None),
  _Code.NOT_FOUND: (404, _REQUEST, 'model_not_found'),
  _Code.ALREADY_EXISTS: (409, _REQUEST, None),
  _Code.ABORTED: (409, _SERVER, None),
  _Code.RESOURCE_EXHAUSTED: (429, 'rate_limit_error', 'rate_limit_exceeded'),
  # nginx uses this status for a client that closed the connection.
  _Code.CANCELLED: (499, _SERVER, 'cancelled'),
  _Code.UNIMPLEMENTED: (501, _SERVER, 'not_implemented'),
  _Code.UNAVAILABLE: (503, _SERVER, 'unavailable'),
  # The cell has no replica that can answer, or no admin server.
  _Code.FAILED_PRECONDITION: (503, _SERVER, 'unavailable'),
  _Code.DEADLINE_EXCEEDED: (504, _SERVER, 'timeout'),
}
_UNKNOWN = (500, _SERVER, None)
# gRPC's message for a request above the limit of the server; it has the code
# RESOURCE_EXHAUSTED, too.
_TOO_LARGE = re.compile(r'message larger than max \((\d+) vs\. (\d+)\)')
_RETRIED = frozenset({429, 503})


@dataclasses.dataclass(eq=False)
class Problem(Exception):
  """An error answer.

  Attributes:
    status: The HTTP status.
    message: The error message.
    kind: The `type` of OpenAI's error object.
    code: The `code` of OpenAI's error object.
    param: The invalid parameter.
    retry_after: The retry delay in seconds; None if a retry does not help.
    allow: The methods of the path, for status 405.
  """

  status: int
  message: str
  kind: str = _REQUEST
  code: str | None = None
  param: str | None = None
  retry_after: float | None = None
  allow: str | None = None

  def body(self) -> dict[str, Any]:
    """Returns the JSON object of the error."""
    return {
      'error': {
        'message': self.message,
        'type': self.kind,
        'param': self.param,
        'code': self.code,
      }
    }

  def headers(self) -> dict[str, str]:
    """Returns the headers that ask for a retry or rule it out.

    Retry-After counts in whole seconds. The openai package first reads
    milliseconds from retry-after-ms, and x-should-retry.
    """
    if self.retry_after is not None:
      return {
        'retry-after': str(max(1, math.ceil(self.retry_after))),
        'retry-after-ms': str(max(1, round(1e3 * self.retry_after))),
      }
    if self.allow is not None:
      return {'allow': self.allow}
    # The openai package retries every error with status 409 or at least 500.
    if self.status == 409 or self.status >= 500:
      return {'x-should-retry': 'false'}
    return {}


class BadRequest(Problem):
  """An error: the request can never succeed without a change."""

  def __init__(self, message: str, param: str | None = None):
    super().__init__(400, message, param=param)


# The cell's messages about a setting begin like this.
_ABOUT = re.compile(r'(?:the )?([a-z_]+) (?:is|has|have) ')
# Maps the cell's name of a setting to the parameter of a request.
_PARAMETERS = {'prompt': 'prompt'} | {
  name: option.http
  for option in request_options.OPTIONS
  for name in (option.engine, option.completion)
}


def _param(error: errors.SaxError) -> str | None:
  """Returns the invalid parameter if the message begins with it."""
  match = _ABOUT.match(error.message)
  return _PARAMETERS.get(match[1]) if match else None


def from_error(error: errors.SaxError | Problem) -> Problem:
  """Returns the problem for an error of the cell or of its client library."""
  if isinstance(error, Problem):
    return error
  if size := _TOO_LARGE.search(error.message):
    return Problem(
      413,
      f'the request has {size[1]} bytes, more than the limit of {size[2]} of'
      ' the model server. Shorten it',
    )
  status, kind, code = _BY_CODE.get(error.code, _UNKNOWN)
  retry_after = None
  if status in _RETRIED:
    retry_after = error.retry_after or _DEFAULT_RETRY_SECONDS
  param = _param(error) if status == 400 else None
  return Problem(status, error.message, kind, code, param, retry_after)


def too_busy(message: str) -> Problem:
  """Returns the error for a request that exceeds this process's capacity."""
  return from_error(errors.ResourceExhausted(message))


def unavailable(message: str, retry_after: float | None) -> Problem:
  """Returns the error for a model that cannot answer now.

  Args:
    message: The error message.
    retry_after: The retry delay in seconds; None if a retry does not help.
  """
  return Problem(503, message, _SERVER, 'unavailable', 'model', retry_after)


def model_not_found(name: str, names: Sequence[str]) -> Problem:
  """Returns the error for a model that the cell does not publish.

  Args:
    name: The name in the request.
    names: The names of the published models.
  """
  shown = name if len(name) <= _MOST_CHARACTERS else f'{name[:60]}...'
  known = ', '.join(names[:_MOST_NAMES]) or 'none'
  more = ' ...' if len(names) > _MOST_NAMES else ''
  return Problem(
    404,
    f'The model {shown!r} is not published. Available: {known}{more}. See'
    ' /v1/models',
    code='model_not_found',
    param='model',
  )
