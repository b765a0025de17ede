"""Errors that travel over gRPC as status codes.

The code of a cell raises a subclass of `SaxError`. Servers convert it to the
status of the call. Clients convert the status of a failed call back to it.
"""

import re

import grpc

# The name comes from gRPC's own retry design (gRFC A6), so other clients with a
# retry policy understand it too. The value is in milliseconds.
_PUSHBACK = 'grpc-retry-pushback-ms'

# This matches "NotFound" in the text of an error that another server wrapped.
_WRAPPED_CODE = re.compile(r'rpc error: code = ([A-Za-z]+) desc')
# `SaxError.wire_text` adds this suffix.
_SUFFIX = re.compile(r': rpc error: code = ([A-Za-z]+) desc = \1$')
_NOT_REACHED = 'failed to connect to all addresses'
# Each row has a part of gRPC's text, its meaning and the remedy.
_MEANINGS = (
  (
    'certificate has expired',
    'the certificate of the server has expired. Replace its --tls_cert_file.'
    ' No restart is needed',
  ),
  (
    'certificate is not yet valid',
    'the certificate of the server is not valid yet. Compare the clocks of'
    ' the two machines',
  ),
  (
    'Hostname Verification Check failed',
    'the certificate of the server is for another name. Set'
    ' --tls_server_name=<a name in it>, or give the server another'
    ' certificate',
  ),
  (
    'WRONG_VERSION_NUMBER',
    'the server speaks plain text. Start it with --tls_cert_file and'
    ' --tls_key_file, or omit the TLS flags of this program',
  ),
  (
    'CERTIFICATE_VERIFY_FAILED',
    'the certificate of the server is not from an authority in --tls_ca_file.'
    ' Set it to the CA that signed the certificate',
  ),
)
_HUNG_UP = (
  'the server closed the connection before it answered. If it speaks TLS, set'
  ' --tls_ca_file. If it requires client certificates, set --tls_cert_file'
  ' and --tls_key_file to valid ones from its CA'
)


class SaxError(Exception):
  """An error with a gRPC status code.

  Attributes:
    code: The status code, one per subclass.
    message: The text, without the code.
    retry_after: The number of seconds after which a retry may succeed, or None
      if the server sent none.
  """

  code: grpc.StatusCode = grpc.StatusCode.UNKNOWN
  retry_after: float | None = None

  def __init__(self, message: str):
    super().__init__(message)
    self.message = message

  def wire_text(self) -> str:
    """Returns the message in the format of Sax admin servers, with the code.

    Clients linked with an old grpc-go see only UNKNOWN for these errors, and
    must find the code in the text.
    """
    name = camel_case(self.code)
    return f'{self.message}: rpc error: code = {name} desc = {name}'

  def trailing_metadata(self) -> tuple[tuple[str, str], ...]:
    """Returns the metadata to send with the status: `retry_after`, if known."""
    if self.retry_after is None:
      return ()
    return ((_PUSHBACK, str(max(1, round(1e3 * self.retry_after)))),)


class InvalidArgument(SaxError):
  """The request is invalid and can never succeed."""

  code = grpc.StatusCode.INVALID_ARGUMENT


class NotFound(SaxError):
  """The object that the request names does not exist."""

  code = grpc.StatusCode.NOT_FOUND


class AlreadyExists(SaxError):
  """The object that the request would create already exists."""

  code = grpc.StatusCode.ALREADY_EXISTS


class FailedPrecondition(SaxError):
  """The system is not set up for the request."""

  code = grpc.StatusCode.FAILED_PRECONDITION


class Unavailable(SaxError):
  """The server cannot be reached or is not ready. A retry may succeed."""

  code = grpc.StatusCode.UNAVAILABLE


class ResourceExhausted(SaxError):
  """A queue is full. A later retry may succeed."""

  code = grpc.StatusCode.RESOURCE_EXHAUSTED

  def __init__(self, message: str, retry_after: float | None = None):
    super().__init__(message)
    self.retry_after = retry_after


class PermissionDenied(SaxError):
  """The caller is not on the access control list."""

  code = grpc.StatusCode.PERMISSION_DENIED


class DeadlineExceeded(SaxError):
  """The deadline passed before the request was finished."""

  code = grpc.StatusCode.DEADLINE_EXCEEDED


class Internal(SaxError):
  """The server has a fault."""

  code = grpc.StatusCode.INTERNAL


class DataLoss(SaxError):
  """Stored data is damaged, and no good copy is left."""

  code = grpc.StatusCode.DATA_LOSS


class Unimplemented(SaxError):
  """The server does not support the operation."""

  code = grpc.StatusCode.UNIMPLEMENTED


class Cancelled(SaxError):
  """The caller or the server cancelled the request."""

  code = grpc.StatusCode.CANCELLED


class Aborted(SaxError):
  """Another writer was faster."""

  code = grpc.StatusCode.ABORTED


_BY_CODE = {cls.code: cls for cls in SaxError.__subclasses__()}


def camel_case(code: grpc.StatusCode) -> str:
  """Converts a code to the spelling of grpc-go: NOT_FOUND to "NotFound"."""
  if code is grpc.StatusCode.CANCELLED:
    return 'Canceled'
  return ''.join(word.capitalize() for word in code.name.split('_'))


def code_name(error: BaseException | None) -> str:
  """Returns the name of the status code with which an error ends a call.

  Args:
    error: The error, or None for success. An error that is neither a `SaxError`
      nor a cancellation counts as a fault of the server.
  """
  if error is None:
    return grpc.StatusCode.OK.name
  if isinstance(error, SaxError):
    return error.code.name
  if isinstance(error, Exception):
    return grpc.StatusCode.INTERNAL.name
  # The error is asyncio.CancelledError or GeneratorExit: the client is gone.
  return grpc.StatusCode.CANCELLED.name


_BY_NAME = {camel_case(code): code for code in grpc.StatusCode}


def from_code(code: grpc.StatusCode, message: str) -> SaxError:
  """Returns the error for a status code and its text."""
  return _BY_CODE.get(code, SaxError)(message)


def from_exception(error: Exception, what: str) -> SaxError:
  """Converts any exception to the error to answer with.

  Args:
    error: The exception. A `SaxError` is returned unchanged. A ValueError is
      the caller's fault; any other exception is the server's.
    what: The beginning of the new error's text, such as "Loading error".
  """
  if isinstance(error, SaxError):
    return error
  text = f'{what}: {type(error).__name__}: {error}'
  return (InvalidArgument if isinstance(error, ValueError) else Internal)(text)


def from_rpc_error(error: grpc.RpcError) -> SaxError:
  """Converts the error of a failed call to a `SaxError`.

  Some admin servers send UNKNOWN for every error and give the code only in the
  text. Then the code in the text counts.

  Args:
    error: The error that a gRPC stub raised. It has `code()` and `details()`.

  Returns:
    A `SaxError` of the matching subclass.
  """
  code, details = error.code(), error.details() or ''
  if code is grpc.StatusCode.UNKNOWN:
    match = _WRAPPED_CODE.search(details)
    if match:
      code = _BY_NAME.get(match.group(1), code)
    elif 'context deadline exceeded' in details:
      code = grpc.StatusCode.DEADLINE_EXCEEDED
  elif code is grpc.StatusCode.UNAVAILABLE:
    meaning = explain_tls(details)
    details = f'{meaning} ({details})' if meaning else details
  result = from_code(code, _SUFFIX.sub('', details))
  if isinstance(result, ResourceExhausted):
    result.retry_after = _retry_after(error)
  return result


def _retry_after(error: grpc.RpcError) -> float | None:
  for key, value in error.trailing_metadata() or ():
    if key == _PUSHBACK and value.isdecimal():
      return int(value) / 1e3
  return None


def explain_tls(details: str) -> str:
  """Explains why TLS prevented a connection.

  gRPC reports such failures in the words of the TLS library.

  Args:
    details: The text of a call's status UNAVAILABLE.

  Returns:
    A sentence for the user, or '' if the failure has nothing to do with TLS.
  """
  if _NOT_REACHED not in details:
    return ''
  if is_hung_up(details):
    return _HUNG_UP
  return _meaning(details)


def is_hung_up(details: str) -> bool:
  """Returns True if the server accepted a connection and closed it at once."""
  return _NOT_REACHED in details and 'Socket closed' in details


def is_certain_tls(details: str) -> bool:
  """Returns True if TLS failed for a reason that a retry cannot fix."""
  return _NOT_REACHED in details and bool(_meaning(details))


def _meaning(details: str) -> str:
  return next((text for part, text in _MEANINGS if part in details), '')
