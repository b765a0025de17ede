"""Checks that an HTTP request that changes something comes from this machine.

A program on loopback has no login, so anyone who can reach it may use it.
Browsers can reach it too, on behalf of any page that a user opens. So a request
that changes something must come from a page of the program itself, or from a
client that is not a browser.
"""

from collections.abc import Collection
import re

from starlette import requests

from saxml_ext.common import errors
from saxml_ext.common import net

_LOCAL_NAMES = frozenset({'localhost', '127.0.0.1', '::1'})
# Proxies add these headers. A client behind a proxy may be on another machine.
_PROXIED = frozenset(
  {
    'cf-connecting-ip',
    'fastly-client-ip',
    'forwarded',
    'true-client-ip',
    'via',
    'x-client-ip',
    'x-cluster-client-ip',
    'x-envoy-external-address',
    'x-original-forwarded-for',
    'x-real-ip',
  }
)
# A name or an address, with an optional port (RFC 9110, 7.2).
_HOST = re.compile(
  r'(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::([0-9]{0,5}))?'
)
_MOST_PORT = 65535
_PROXIED_PREFIX = 'x-forwarded-'


def check(request: requests.Request) -> None:
  """Raises PermissionDenied unless a request comes from this machine.

  The origin in the browser's headers must be this server. The address must have
  a loopback name, because no name of another site can resolve to it.
  """
  client = request.client.host if request.client else ''
  if not net.is_loopback(client):
    raise errors.PermissionDenied(
      f'{client or "an unknown client"} may not do this. Connect from the'
      ' machine itself, for example through an SSH tunnel'
    )
  if proxied := [
    name
    for name in request.headers
    if name in _PROXIED or name.startswith(_PROXIED_PREFIX)
  ]:
    raise errors.PermissionDenied(
      f'the request came through a proxy (it has {", ".join(proxied)}).'
      ' Connect from the machine itself'
    )
  if host_name(request) not in _LOCAL_NAMES:
    host = request.headers.get('host', '')
    raise errors.PermissionDenied(
      f'the host name is {host!r}. Open this page as http://localhost'
    )
  check_same_origin(request)


def host_name(request: requests.Request) -> str:
  """Returns the host name in lower case, or '' if Host is malformed."""
  match = _HOST.fullmatch(request.headers.get('host', ''))
  if not match or int(match[3] or 0) > _MOST_PORT:
    return ''
  return (match[1] or match[2]).lower().rstrip('.')


def check_host(
  request: requests.Request, local: bool, allowed: Collection[str]
) -> None:
  """Raises PermissionDenied if a request names another server as its host.

  A page of another site reaches this server if its own name is rebound to the
  server's address. The browser still sends the page's name as Host.

  Args:
    request: The request. Without Host, it does not come from a browser.
    local: True if loopback's names are allowed.
    allowed: More allowed names, in lower case.
  """
  if 'host' not in request.headers:
    return
  name = host_name(request)
  is_local = name == 'localhost' or net.is_loopback(name)
  if not (name in allowed or (local and is_local)):
    raise errors.PermissionDenied(
      f'The host name is {request.headers["host"]!r}, which is not a name of'
      ' this server. Use localhost, or start the server with'
      ' --allowed_hosts=NAME.'
    )


def check_origin(request: requests.Request, allowed: Collection[str]) -> None:
  """Raises PermissionDenied if a page of a site that is not allowed asks."""
  origin = request.headers.get('origin')
  if origin is None or '*' in allowed or origin in allowed:
    return
  _, _, site = origin.partition('://')
  if site != request.headers.get('host', ''):
    raise errors.PermissionDenied(
      f'A page of {origin} sent this, which is not allowed. Start the server'
      f' with --allowed_origins={origin} to allow it.'
    )


def check_same_origin(request: requests.Request) -> None:
  """Raises PermissionDenied if a page of another site sent a request."""
  site = request.headers.get('sec-fetch-site', 'none')
  origin = request.headers.get('origin')
  host = request.headers.get('host', '')
  same = origin is None or origin.partition('://')[2] == host
  if site not in ('none', 'same-origin') or not same:
    raise errors.PermissionDenied(
      f'the request came from a page of {origin or "another site"}. Only'
      ' pages of this server may send it'
    )
