"""Who makes a call, as far as somebody vouches for it.

A name is verified by mutual TLS: it stands in the certificate that the caller
proved to own. A gateway that verifies its own users, by API keys, tells for
whom it calls in the metadata of the call; it is believed if its own verified
name is among the trusted proxies.
"""

from collections.abc import Collection, Mapping
import logging
import re
from typing import Any
import urllib.parse

import grpc

from saxml_ext.common import errors

METADATA_KEY = 'sax-caller'
# Printable ASCII, as metadata has to be, without what separates fields.
_NAME = re.compile(r'[!-~]{1,256}')
# Of gRPC's properties of a peer, in the order of preference.
_PROPERTIES = ('peer_uri', 'peer_dns', 'peer_email')
_ALTERNATIVES = ('URI', 'DNS', 'email')
_COMMON_NAME = 'x509_common_name'
_SECURE = [b'ssl']

_logger = logging.getLogger(__name__)

_proxies: frozenset[str] = frozenset()
_warned: set[str] = set()


def check_name(name: str) -> None:
  """Raises InvalidArgument if nobody can have such a name."""
  if not _NAME.fullmatch(name):
    raise errors.InvalidArgument(
      f'{name[:80]!r} is no name: it has 1 to 256 characters of printable ASCII'
      ' and no spaces'
    )


def trust(proxies: Collection[str]) -> None:
  """Names the peers that may call for others."""
  global _proxies
  _proxies = frozenset(proxies)


def peer_names(context: grpc.ServicerContext) -> tuple[str, ...]:
  """The names in the certificate of whoever is at the other end.

  Those of its subject alternative names: URIs, DNS names, email addresses; if
  there are none, its common name. Empty without a certificate.
  """
  properties = context.auth_context()
  if properties.get('transport_security_type') != _SECURE:
    return ()
  found = [n for kind in _PROPERTIES for n in properties.get(kind, ())]
  if not found:
    found = list(properties.get(_COMMON_NAME, ()))
  texts = (n.decode('ascii', 'replace') for n in found)
  return tuple(text for text in texts if _NAME.fullmatch(text))


def names_in(certificate: Mapping[str, Any]) -> tuple[str, ...]:
  """The same of a certificate that a port of HTTP has verified.

  Args:
    certificate: what `ssl.SSLSocket.getpeercert` gives.
  """
  alternative = certificate.get('subjectAltName', ())
  found = [
    value for kind in _ALTERNATIVES for its, value in alternative if its == kind
  ]
  if not found:
    found = [
      value
      for part in certificate.get('subject', ())
      for key, value in part
      if key == 'commonName'
    ]
  return tuple(name for name in found if _NAME.fullmatch(name))


def names(context: grpc.ServicerContext) -> tuple[str, ...]:
  """All verified names of who calls; empty if nobody verified any."""
  own = peer_names(context)
  claims = [
    value
    for key, value in context.invocation_metadata() or ()
    if key == METADATA_KEY
  ]
  if not claims:
    return own
  if not _proxies.intersection(own):
    # Not even its own rights: a gateway that was not made a trusted proxy must
    # not lend them to its users.
    _warn(own)
    return ()
  claim = claims[0]
  if (
    len(claims) > 1 or not isinstance(claim, str) or not _NAME.fullmatch(claim)
  ):
    return ()
  return (claim,)


def name(context: grpc.ServicerContext) -> str:
  """The verified name of who calls, the first of several; '' if there is none."""
  found = names(context)
  return found[0] if found else ''


def client(context: grpc.ServicerContext) -> str:
  """What tells callers apart: the verified name, else the peer's host."""
  return name(context) or _host(context.peer())


def _host(peer: str) -> str:
  """The host of gRPC's "ipv4:1.2.3.4:567", "ipv6:%5B::1%5D:567", "unix:..."."""
  kind, _, rest = urllib.parse.unquote(peer).partition(':')
  if kind not in ('ipv4', 'ipv6'):
    return peer
  return rest.rpartition(':')[0].strip('[]')


def _warn(own: tuple[str, ...]) -> None:
  who = ', '.join(own) or 'a peer without a certificate'
  if who not in _warned and len(_warned) < 100:
    _warned.add(who)
    _logger.warning(
      '%s calls for others but is not among --trusted_proxies; it is treated as'
      ' nobody',
      who,
    )
