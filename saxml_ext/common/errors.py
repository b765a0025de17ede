"""Errors that travel over gRPC as status codes.

Code of the cell raises a subclass of `SaxError`; servers turn it into the
status of the call, clients turn the status of a failed call back into it.
"""

import re

import grpc

# The name of gRPC's own retry design (gRFC A6), so that other clients with a
# retry policy understand it too; the value is in milliseconds.
_PUSHBACK = 'grpc-retry-pushback-ms'

# "NotFound" in the text of an error that another server wrapped.
_WRAPPED_CODE = re.compile(r'rpc error: code = ([A-Za-z]+) desc')
# What `SaxError.wire_text` adds.
_SUFFIX = re.compile(r': rpc error: code = ([A-Za-z]+) desc = \1$')
_NOT_REACHED = 'failed to connect to all addresses'
# Part of gRPC's text -> what it means and what to do.
_MEANINGS = (
  (
    'certificate has expired',
    'the certificate of the server there has expired: replace its'
    ' --tls_cert_file (no restart is needed)',
  ),
  (
    'certificate is not yet valid',
    'the certificate of the server there is not valid yet: compare the clocks'
    ' of the two machines',
  ),
  (
    'Hostname Verification Check failed',
    'the certificate of the server there is for another name: give'
    ' --tls_server_name=<a name that it carries>, or another certificate to the'
    ' server',
  ),
  (
    'WRONG_VERSION_NUMBER',
    'the server there speaks plain text: start it with --tls_cert_file and'
    ' --tls_key_file, or leave the TLS flags of this program out',
  ),
  (
    'CERTIFICATE_VERIFY_FAILED',
    'the certificate of the server there is not from an authority that'
    ' --tls_ca_file names: give the CA that signed it',
  ),
)
_HUNG_UP = (
  'the server there hung up before it answered: if it speaks TLS, give'
  ' --tls_ca_file; if it wants certificates of its clients, --tls_cert_file and'
  ' --tls_key_file of one of its CA that has not expired'
)


class SaxError(Exception):
  """An error with a gRPC status code.

  Attributes:
    code: the status code, one per subclass.
    message: the text, without the code.
    retry_after: seconds after which trying again may help; None if the server
      did not say.
  """

  code: grpc.StatusCode = grpc.StatusCode.UNKNOWN
  retry_after: float | None = None

  def __init__(self, message: str):
    super().__init__(message)
    self.message = message

  def wire_text(self) -> str:
    """The message as Sax admin servers write it, code included.

    Clients linked with an old grpc-go see only UNKNOWN for these errors and
    have to find the code in the text.
    """
    name = camel_case(self.code)
    return f'{self.message}: rpc error: code = {name} desc = {name}'

  def trailing_metadata(self) -> tuple[tuple[str, str], ...]:
    """What goes out beside code and text: `retry_after`, if it is known."""
    if self.retry_after is None:
      return ()
    return ((_PUSHBACK, str(max(1, round(1e3 * self.retry_after)))),)


class InvalidArgument(SaxError):
  """The request can never succeed as it is."""

  code = grpc.StatusCode.INVALID_ARGUMENT


class NotFound(SaxError):
  """What the request names is not here."""

  code = grpc.StatusCode.NOT_FOUND


class AlreadyExists(SaxError):
  """What the request wants to create is here already."""

  code = grpc.StatusCode.ALREADY_EXISTS


class FailedPrecondition(SaxError):
  """Something must be set up first."""

  code = grpc.StatusCode.FAILED_PRECONDITION


class Unavailable(SaxError):
  """The server cannot be reached or is not ready; trying again may help."""

  code = grpc.StatusCode.UNAVAILABLE


class ResourceExhausted(SaxError):
  """A queue is full; trying again later may help."""

  code = grpc.StatusCode.RESOURCE_EXHAUSTED

  def __init__(self, message: str, retry_after: float | None = None):
    super().__init__(message)
    self.retry_after = retry_after


class PermissionDenied(SaxError):
  """The caller is not on the access control list."""

  code = grpc.StatusCode.PERMISSION_DENIED


class DeadlineExceeded(SaxError):
  """Time was up first."""

  code = grpc.StatusCode.DEADLINE_EXCEEDED


class Internal(SaxError):
  """A fault of the server."""

  code = grpc.StatusCode.INTERNAL


class DataLoss(SaxError):
  """Stored data is damaged, and no good copy is left."""

  code = grpc.StatusCode.DATA_LOSS


class Unimplemented(SaxError):
  """The server does not offer this."""

  code = grpc.StatusCode.UNIMPLEMENTED


class Cancelled(SaxError):
  """The caller or the server gave the request up."""

  code = grpc.StatusCode.CANCELLED


class Aborted(SaxError):
  """Somebody else was faster."""

  code = grpc.StatusCode.ABORTED


_BY_CODE = {cls.code: cls for cls in SaxError.__subclasses__()}


def camel_case(code: grpc.StatusCode) -> str:
  """NOT_FOUND -> "NotFound", the spelling of grpc-go."""
  if code is grpc.StatusCode.CANCELLED:
    return 'Canceled'
  return ''.join(word.capitalize() for word in code.name.split('_'))


def code_name(error: BaseException | None) -> str:
  """The name of the status code that an error ends a call with.

  Args:
    error: None for success; one that is neither a `SaxError` nor says that the
      call was cancelled is the server's fault.
  """
  if error is None:
    return grpc.StatusCode.OK.name
  if isinstance(error, SaxError):
    return error.code.name
  if isinstance(error, Exception):
    return grpc.StatusCode.INTERNAL.name
  # asyncio.CancelledError, GeneratorExit: nobody waits for the answer.
  return grpc.StatusCode.CANCELLED.name


_BY_NAME = {camel_case(code): code for code in grpc.StatusCode}


def from_code(code: grpc.StatusCode, message: str) -> SaxError:
  """The error for a status code and its text."""
  return _BY_CODE.get(code, SaxError)(message)


def from_exception(error: Exception, what: str) -> SaxError:
  """The error to answer with where something raised any exception.

  Args:
    error: a SaxError is taken as it is; a ValueError is the caller's fault,
      anything else the server's.
    what: begins the text of those, such as "Loading error".
  """
  if isinstance(error, SaxError):
    return error
  text = f'{what}: {type(error).__name__}: {error}'
  return (InvalidArgument if isinstance(error, ValueError) else Internal)(text)


def from_rpc_error(error: grpc.RpcError) -> SaxError:
  """The error that a failed call stands for.

  Some admin servers answer every error of theirs as UNKNOWN and name the code
  in the text only; then that code counts.

  Args:
    error: raised by a gRPC stub; has `code()` and `details()`.

  Returns:
    A `SaxError` of the fitting subclass.
  """
  code, details = error.code(), error.details() or ''
  if code is grpc.StatusCode.UNKNOWN:
    found = _WRAPPED_CODE.search(details)
    if found:
      code = _BY_NAME.get(found.group(1), code)
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
  """Explains a connection that TLS prevented.

  gRPC reports it in the words of the library below it.

  Args:
    details: The text of a call's status UNAVAILABLE.

  Returns:
    A sentence for the user; '' if it has nothing to do with TLS.
  """
  if _NOT_REACHED not in details:
    return ''
  if is_hung_up(details):
    return _HUNG_UP
  return _meaning(details)


def is_hung_up(details: str) -> bool:
  """Returns whether the server took the connection and ended it at once."""
  return _NOT_REACHED in details and 'Socket closed' in details


def is_certain_tls(details: str) -> bool:
  """Returns whether TLS failed for a reason that waiting does not mend."""
  return _NOT_REACHED in details and bool(_meaning(details))


def _meaning(details: str) -> str:
  return next((text for part, text in _MEANINGS if part in details), '')
