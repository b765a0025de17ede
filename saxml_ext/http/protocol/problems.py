"""Errors as the OpenAI API has them, and what they are over gRPC."""

import json
import math
import re
from typing import Any

import grpc

from saxml_ext.common import errors

# What a client is told to wait where the cell names no time.
_DEFAULT_RETRY_SECONDS = 1.0

# HTTP's status, and the type and code of OpenAI's error object.
_BY_CODE: dict[grpc.StatusCode, tuple[int, str, str | None]] = {
  grpc.StatusCode.INVALID_ARGUMENT: (400, 'invalid_request_error', None),
  grpc.StatusCode.OUT_OF_RANGE: (400, 'invalid_request_error', None),
  grpc.StatusCode.UNAUTHENTICATED: (
    401,
    'authentication_error',
    'invalid_api_key',
  ),
  grpc.StatusCode.PERMISSION_DENIED: (403, 'permission_error', None),
  grpc.StatusCode.NOT_FOUND: (
    404,
    'invalid_request_error',
    'model_not_found',
  ),
  grpc.StatusCode.ALREADY_EXISTS: (409, 'invalid_request_error', None),
  grpc.StatusCode.ABORTED: (409, 'server_error', None),
  grpc.StatusCode.RESOURCE_EXHAUSTED: (
    429,
    'rate_limit_error',
    'rate_limit_exceeded',
  ),
  # nginx's number for a client that did not wait for its answer.
  grpc.StatusCode.CANCELLED: (499, 'server_error', 'cancelled'),
  grpc.StatusCode.UNIMPLEMENTED: (501, 'server_error', 'not_implemented'),
  grpc.StatusCode.UNAVAILABLE: (503, 'server_error', 'unavailable'),
  # The cell has no replica that could answer, or no admin server.
  grpc.StatusCode.FAILED_PRECONDITION: (503, 'server_error', 'unavailable'),
  grpc.StatusCode.DEADLINE_EXCEEDED: (504, 'server_error', 'timeout'),
}
_UNKNOWN = (500, 'server_error', None)
_RETRIED = frozenset({429, 503})


class Problem(Exception):
  """An answer that is an error.

  Attributes:
    status: of HTTP.
    message: for people.
    kind: OpenAI's `type`.
    code: OpenAI's `code`.
    param: the parameter at fault.
    retry_after: seconds; None if trying again is of no use.
  """

  def __init__(
    self,
    status: int,
    message: str,
    kind: str = 'invalid_request_error',
    code: str | None = None,
    param: str | None = None,
    retry_after: float | None = None,
  ):
    super().__init__(message)
    self.status = status
    self.message = message
    self.kind = kind
    self.code = code
    self.param = param
    self.retry_after = retry_after

  def body(self) -> dict[str, Any]:
    """The JSON object of the answer."""
    return {
      'error': {
        'message': self.message,
        'type': self.kind,
        'param': self.param,
        'code': self.code,
      }
    }

  def encoded(self) -> bytes:
    """`body` as JSON."""
    return json.dumps(self.body()).encode()

  def headers(self) -> dict[str, str]:
    """What tells clients when to try again, or not to.

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
# A setting of the cell -> the parameter that requests name.
_PARAMETERS = {
  **{
    name: name
    for name in (
      'length_penalty',
      'logprobs',
      'max_tokens',
      'min_tokens',
      'n',
      'priority',
      'prompt',
      'seed',
      'stop_token_ids',
      'temperature',
      'top_k',
      'top_p',
    )
  },
  'beam_search': 'use_beam_search',
  'max_new_tokens': 'max_tokens',
  'min_new_tokens': 'min_tokens',
  'num_beams': 'best_of',
}


def _param(error: errors.SaxError) -> str | None:
  """Returns the parameter at fault, as far as the message begins with it."""
  found = _ABOUT.match(error.message)
  return _PARAMETERS.get(found[1]) if found else None


def of(error: errors.SaxError) -> Problem:
  """The answer for an error of the cell or of its client library."""
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
  """A request names a model that the cell does not publish."""
  return Problem(
    404,
    f'model {name!r} is not published in the cell {cell}; see /v1/models',
    code='model_not_found',
    param='model',
  )
