"""Whether an HTTP request that changes something comes from this machine.

A program on loopback has no login: whoever can reach it may use it. Browsers
reach it too, on behalf of any page that somebody looks at, so what changes
something must come from a page of the program itself, or from no browser.
"""

import urllib.parse

from starlette import requests

from saxml_ext.common import errors
from saxml_ext.common import net

_LOCAL_NAMES = frozenset({'localhost', '127.0.0.1', '::1'})
# What proxies add; who stands behind one is not known to be on this machine.
_PROXIED = ('forwarded', 'via', 'x-forwarded-for', 'x-forwarded-host')


def check(request: requests.Request) -> None:
  """Raises PermissionDenied unless a request is from this machine, see above.

  What a browser says of the origin must be this server; and the server must
  have been addressed by a name of loopback, which no other site's name can be
  made to stand for.
  """
  client = request.client.host if request.client else ''
  if not net.is_loopback(client):
    raise errors.PermissionDenied(
      f'{client or "nobody"} may not do this: connect from the machine itself,'
      ' for example through an SSH tunnel'
    )
  if proxied := [name for name in _PROXIED if name in request.headers]:
    raise errors.PermissionDenied(
      f'this came through a proxy (it has {", ".join(proxied)}): connect from the'
      ' machine itself'
    )
  host = request.headers.get('host', '')
  if urllib.parse.urlsplit(f'//{host}').hostname not in _LOCAL_NAMES:
    raise errors.PermissionDenied(
      f'the host name is {host!r}: open this page as http://localhost'
    )
  check_same_origin(request)


def check_same_origin(request: requests.Request) -> None:
  """Raises PermissionDenied if a page of another site sent a request."""
  site = request.headers.get('sec-fetch-site', 'none')
  origin = request.headers.get('origin')
  host = request.headers.get('host', '')
  same = origin is None or urllib.parse.urlsplit(origin).netloc == host
  if site not in ('none', 'same-origin') or not same:
    raise errors.PermissionDenied(
      f'a page of {origin or "another site"} sent this; only those of this'
      ' server may'
    )
