"""Tells who makes a call, and checks whether they may.

A name is verified by mutual TLS: it stands in the certificate that the caller
proved to own. A gateway that verifies its own users, by API keys, tells for
whom it calls in the metadata of the call; it is believed if its own verified
name is among the trusted proxies.

Everything fails closed: a caller whom nobody verified, a list that does not
exist and a file that cannot be read all mean PERMISSION_DENIED. Only what is
for `acl_file.ALL`, or has no list at all, is for everybody.
"""

from collections.abc import Collection, Mapping
import logging
import os
from typing import Any, TypeAlias
import urllib.parse

from google.protobuf import message
import grpc

from saxml_ext.common import cell as cell_lib
from saxml_ext.common import errors
from saxml_ext.common import storage
from saxml_ext.common.security import acl_file
from saxml_ext.protobuf import admin_pb2

# Seconds in which a changed file is noticed, as other admin servers do.
_INTERVAL = 5.0
_EVERYBODY = ('', acl_file.ALL)
# What no list can be named: nobody is on it.
_NOBODY = 'acl/'

Names: TypeAlias = Collection[str]
METADATA_KEY = 'sax-caller'
# Of gRPC's properties of a peer, in the order of preference.
_PROPERTIES = ('peer_uri', 'peer_dns', 'peer_email')
_ALTERNATIVES = ('URI', 'DNS', 'email')
_COMMON_NAME = 'x509_common_name'
_SECURE = [b'ssl']

_logger = logging.getLogger(__name__)

_proxies: frozenset[str] = frozenset()
_warned: set[str] = set()


class Access:
  """The lists of one cell, and what they are for. Thread-safe."""

  def __init__(self, path: str = '', config_path: str = ''):
    """Reads the files; raises nothing, see `acl_file.BROKEN`.

    Args:
      path: of the file with the lists; '' if there can be none.
      config_path: of the cell's config, which names the list of its admins;
        '': everybody is.
    """
    self._lists = storage.Reread(
      path, acl_file.parse, acl_file.ABSENT, acl_file.BROKEN
    )
    self._admin_acl = storage.Reread(config_path, _admin_acl, '', _NOBODY)
    self.refresh()

  @classmethod
  def of_cell(cls, sax_root: str, cell: str, path: str = '') -> 'Access':
    """That of a cell "/sax/<cell>", its lists in another file if `path`."""
    return cls(
      path or acl_file.path_of(sax_root, cell),
      cell_lib.config_path(sax_root, cell),
    )

  def refresh(self) -> None:
    """Reads the files again."""
    for file in (self._lists, self._admin_acl):
      if file.path:
        file.refresh()

  def follow(self) -> None:
    """Reads them every few seconds until `close`."""
    for file in (self._lists, self._admin_acl):
      if file.path:
        file.follow(_INTERVAL)

  def close(self) -> None:
    """Reads them no more."""
    self._lists.close()
    self._admin_acl.close()

  def check_name(self, name: str) -> None:
    """Checks a list that somebody wants to be asked for.

    Raises:
      InvalidArgument: it is malformed, or there is none of that name.
      FailedPrecondition: the file cannot be read.
      Unimplemented: there is no file.
    """
    lists = self._lists.value
    try:
      acl_file.check_acl_name(name)
    except errors.Unimplemented:
      if not lists.exists:
        raise
    if name in _EVERYBODY or name in lists.members:
      return
    if not lists.usable:
      raise errors.FailedPrecondition(
        f'{self._lists.path} cannot be used: {self._lists.trouble}'
      )
    raise errors.InvalidArgument(
      f'there is no {name} in {self._lists.path}, which has'
      f' {", ".join(sorted(lists.members)) or "no lists"}: add it there, or name'
      ' one of those'
    )

  def check(self, names: Names, acl: str, what: str) -> None:
    """Checks that whoever calls is on a list.

    Args:
      names: verified ones of the caller, see `caller_names`.
      acl: name of the list; '' is everybody.
      what: is asked for, begins the message.

    Raises:
      PermissionDenied: they are not, or nobody can tell.
    """
    if acl in _EVERYBODY:
      return
    members = self._members(acl, what)
    if not members.intersection(names):
      raise _denied(what, acl, names)

  def check_admin(self, names: Names, what: str, model_acl: str = '') -> None:
    """Checks that whoever calls may change the cell, or a model in it.

    Args:
      names: verified ones of the caller.
      what: is asked for, begins the message.
      model_acl: the model's own list: they may be on either of the two. '' does
        not stand for everybody here, but for none but the cell's.

    Raises:
      PermissionDenied: they are not, or nobody can tell.
    """
    try:
      self.check(names, self._admin_acl.value, what)
    except errors.PermissionDenied:
      if not model_acl:
        raise
      self.check(names, model_acl, what)

  def admits_everybody(self) -> bool:
    """Returns whether a caller without a verified name may change the cell."""
    try:
      self.check_admin((), 'this')
    except errors.PermissionDenied:
      return False
    return True

  def check_server(self, names: Names, what: str) -> None:
    """Checks that whoever calls belongs to the cell's own servers.

    They are the members of `acl_file.SERVERS`. As long as there is no such
    list they are the cell's admins, as in stock Sax.

    Args:
      names: verified ones of the caller.
      what: is asked for, begins the message.

    Raises:
      PermissionDenied: they do not, or nobody can tell.
    """
    lists = self._lists.value
    if lists.usable and acl_file.SERVERS not in lists.members:
      self.check_admin(names, what)
    else:
      self.check(names, acl_file.SERVERS, what)

  def _members(self, acl: str, what: str) -> frozenset[str]:
    lists = self._lists.value
    members = lists.members.get(acl)
    if members is not None:
      return members
    # The file is named, but not its place: perhaps a stranger reads this.
    file = os.path.basename(self._lists.path) or '--acl_file'
    if not lists.exists:
      why = f'the cell has no lists: its admins can write {file}'
    elif not lists.usable:
      why = f"the cell's {file} cannot be used; the server's log says why"
    else:
      why = f"the cell's {file} has no such list: its admins can add it"
    raise errors.PermissionDenied(
      f'{what} is for members of {acl!r} only, and {why}'
    )


def _denied(what: str, acl: str, names: Names) -> errors.PermissionDenied:
  if names:
    why = (
      f"{' alias '.join(names)} is not on that list: the cell's admins can add"
      ' the name'
    )
  else:
    why = (
      'this server cannot tell who is calling: connect by TLS with a certificate'
      ' of your own, or through the HTTP gateway with an API key'
    )
  return errors.PermissionDenied(
    f'{what} is for members of {acl!r} only, and {why}'
  )


def _admin_acl(data: bytes) -> str:
  try:
    return admin_pb2.Config.FromString(data).admin_acl
  except message.DecodeError as e:
    raise errors.InvalidArgument(f'it is no sax.Config: {e}') from e


_current = Access()


def use(access: Access) -> None:
  """Makes it that of this process."""
  global _current
  _current = access


def current() -> Access:
  """That of this process."""
  return _current


def check(context: grpc.ServicerContext, acl: str, what: str) -> None:
  """See `Access.check`; of a call, by the lists of this process's cell."""
  if acl not in _EVERYBODY:
    _current.check(caller_names(context), acl, what)


def check_server(context: grpc.ServicerContext, what: str) -> None:
  """See `Access.check_server`; of a call, by the same lists."""
  _current.check_server(caller_names(context), what)


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
  return tuple(text for text in texts if acl_file.NAME.fullmatch(text))


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
  return tuple(name for name in found if acl_file.NAME.fullmatch(name))


def caller_names(context: grpc.ServicerContext) -> tuple[str, ...]:
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
    len(claims) > 1
    or not isinstance(claim, str)
    or not acl_file.NAME.fullmatch(claim)
  ):
    return ()
  return (claim,)


def caller_name(context: grpc.ServicerContext) -> str:
  """The verified name of who calls, the first of several; '' if there is none."""
  found = caller_names(context)
  return found[0] if found else ''


def client_of(context: grpc.ServicerContext) -> str:
  """What tells callers apart: the verified name, else the peer's host."""
  return caller_name(context) or _host(context.peer())


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
