"""The name that a request keeps on its way through a cell.

The first program that handles a request names it, or takes the name that it
came with; every other one passes it on, so that the lines which several
programs log about one request can be found together.
"""

from collections.abc import Iterable
import contextvars
import os
import re

# Of gRPC metadata, and of HTTP where it is spelled X-Request-Id.
KEY = 'x-request-id'

# Printable and short: it is written into logs and headers as it is.
_VALID = re.compile(r'[!-~]{1,128}', re.ASCII)

_current: contextvars.ContextVar[str] = contextvars.ContextVar(
  'request_id', default=''
)


def new() -> str:
  """A name that nothing else has: 16 hexadecimal digits."""
  return os.urandom(8).hex()


def of(metadata: Iterable[tuple[str, str | bytes]]) -> str:
  """The id in a call's metadata, or a new one if it has none that is valid."""
  for key, value in metadata:
    if key == KEY and isinstance(value, str) and _VALID.fullmatch(value):
      return value
  return new()


def current() -> str:
  """The id of the request that is being handled here; '' for none."""
  return _current.get()


def use(request_id: str) -> contextvars.Token[str]:
  """Makes an id the current one of this task or thread; see `restore`."""
  return _current.set(request_id)


def restore(token: contextvars.Token[str]) -> None:
  """Ends what `use` began."""
  _current.reset(token)
