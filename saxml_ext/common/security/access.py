"""Identifies callers, and checks their permissions.

A name is verified by mutual TLS: it is in the certificate of the caller, who
has its private key. A gateway verifies its own users by API keys. It sends the
user's name in the metadata of a call. Servers trust that name only if the
gateway's own verified name is among the trusted proxies.

Everything fails closed. A caller without a verified name, a list that does not
exist and a file that cannot be read all cause PERMISSION_DENIED. Everybody has
access only to objects without a list or with the list `acl_file.ALL`.
"""

from collections.abc import Collection, Mapping
import logging
import os
from typing import Any, TypeAlias
import urllib.parse

import grpc

from saxml_ext.common import cell as cell_lib
from saxml_ext.common import errors
from saxml_ext.common import ids
from saxml_ext.common import storage
from saxml_ext.common.security import acl_file

# A changed file is noticed within this many seconds, as in other admin servers.
_INTERVAL = 5.0
_EVERYBODY = ('', acl_file.ALL)
# No list can have this name, so nobody is on it.
_NO_CALLER = 'acl/'

Names: TypeAlias = Collection[str]
METADATA_KEY = 'sax-caller'
# These properties of a gRPC peer are checked in this order.
_PROPERTIES = ('peer_uri', 'peer_dns', 'peer_email')
_ALTERNATIVES = ('URI', 'DNS', 'email')
_COMMON_NAME = 'x509_common_name'
_SECURE = [b'ssl']

_logger = logging.getLogger(__name__)

_proxies: frozenset[str] = frozenset()
_warned: set[str] = set()


class Access:
  """The access control lists of one cell, and the checks. Thread-safe."""

  def __init__(self, path: str = '', config_path: str = ''):
    """Reads the files. It raises no error; see `acl_file.BROKEN`.

    Args:
      path: The path of the file with the lists; '' if there is none.
      config_path: The path of the cell's config, which names the list of its
        admins. '' makes everybody an admin.
    """
    self._lists = storage.Reread(
      path, acl_file.parse, acl_file.ABSENT, acl_file.BROKEN
    )
    # A cell whose config is missing has no admins until it is there.
    self._admin_acl = storage.Reread(
      config_path,
      lambda data: cell_lib.parse_config(data, 'the file').admin_acl,
      _NO_CALLER if config_path else '',
      _NO_CALLER,
    )
    self.refresh()

  @classmethod
  def from_cell(cls, sax_root: str, cell: str, path: str = '') -> 'Access':
    """Returns the lists of a cell.

    Args:
      sax_root: The root directory of all cells.
      cell: The cell, "/sax/<cell>".
      path: The path of the file with the lists; '' is the cell's own file.
    """
    return cls(
      path or acl_file.path_of(sax_root, cell),
      cell_lib.config_path(sax_root, cell),
    )

  def check_usable(self, lists_too: bool = False) -> None:
    """Checks that the files can be used, before a program starts.

    Args:
      lists_too: True if the file with the lists must exist.

    Raises:
      FailedPrecondition: A file is damaged, or the file must exist and does
        not. Until it is good, nobody has the rights that depend on it.
    """
    for file in (self._lists, self._admin_acl):
      if file.trouble:
        raise errors.FailedPrecondition(
          f'{file.path} cannot be used: {file.trouble}'
        )
    if self._lists.missing and self._admin_acl.value not in _EVERYBODY:
      _logger.warning(
        '%s does not exist, so nobody is on a list of the cell',
        self._lists.path,
      )
    if lists_too and self._lists.missing:
      raise errors.FailedPrecondition(
        f'{self._lists.path} does not exist. Write the access control lists, or'
        ' correct --acl_file'
      )

  def refresh(self) -> None:
    """Reads the files again."""
    for file in (self._lists, self._admin_acl):
      if file.path:
        file.refresh()

  def follow(self) -> None:
    """Reads the files every few seconds until `close`."""
    for file in (self._lists, self._admin_acl):
      if file.path:
        file.follow(_INTERVAL)

  def close(self) -> None:
    """Stops reading the files."""
    self._lists.close()
    self._admin_acl.close()

  def check_name(self, name: str) -> None:
    """Checks the name of a list that an object is to have.

    Raises:
      InvalidArgument: The name is malformed, or there is no list of that name.
      FailedPrecondition: The file cannot be read.
      Unimplemented: There is no file.
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
      f'{self._lists.path} has no list {ids.shorten(name)}. Add it, or use one'
      ' of its lists: '
      + (', '.join(map(ids.shorten, sorted(lists.members))) or 'none')
    )

  def check(self, names: Names, acl: str, what: str) -> None:
    """Checks that a caller is on a list.

    Args:
      names: The verified names of the caller; see `caller_names`.
      acl: The name of the list; '' is everybody.
      what: The requested operation, which begins the message.

    Raises:
      PermissionDenied: The caller is not on the list, or the list is unknown.
    """
    if acl in _EVERYBODY:
      return
    members = self._members(acl, what)
    if not members.intersection(names):
      raise _denied(what, acl, _why_unlisted(names))

  def check_admin(self, names: Names, what: str, model_acl: str = '') -> None:
    """Checks that a caller may change the cell, or a model in it.

    Args:
      names: The verified names of the caller.
      what: The requested operation, which begins the message.
      model_acl: The model's own list of admins. The caller must be on this list
        or on the cell's list. '' adds nobody to the cell's list.

    Raises:
      PermissionDenied: The caller is on neither list, or the lists are unknown.
    """
    try:
      self.check(names, self._admin_acl.value, what)
    except errors.PermissionDenied:
      if not model_acl:
        raise
      self.check(names, model_acl, what)

  def admits_everybody(self) -> bool:
    """Returns True if a caller without a verified name may change the cell."""
    try:
      self.check_admin((), 'this')
    except errors.PermissionDenied:
      return False
    return True

  def check_server(self, names: Names, what: str) -> None:
    """Checks that a caller is one of the cell's own servers.

    The servers are the members of `acl_file.SERVERS`. Without such a list, they
    are the cell's admins, as in stock Sax.

    Args:
      names: The verified names of the caller.
      what: The requested operation, which begins the message.

    Raises:
      PermissionDenied: The caller is not a server, or the list is unknown.
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
    # The message has the name of the file without its directory, because a
    # stranger may read it.
    file = os.path.basename(self._lists.path) or '--acl_file'
    if not lists.exists:
      why = f'the cell has no lists. Its admins can write {file}'
    elif not lists.usable:
      why = f"the cell's {file} cannot be used. The server's log has the reason"
    else:
      why = f"the cell's {file} has no such list. Its admins can add it"
    raise _denied(what, acl, why)


def _why_unlisted(names: Names) -> str:
  if names:
    callers = ' alias '.join(map(ids.shorten, names))
    return f"{callers} is not on that list. The cell's admins can add the name"
  return (
    'the caller is unknown to this server. Connect by TLS with a client'
    ' certificate, or through the HTTP gateway with an API key'
  )


def _denied(what: str, acl: str, why: str) -> errors.PermissionDenied:
  return errors.PermissionDenied(
    f'{what} requires membership in {ids.shorten(acl)!r}, and {why}'
  )


_current = Access()


def use(access: Access) -> None:
  """Sets the access lists of this process."""
  global _current
  _current = access


def current() -> Access:
  """Returns the access lists of this process."""
  return _current


def check(context: grpc.ServicerContext, acl: str, what: str) -> None:
  """Checks the caller of a gRPC call with this process's lists.

  See `Access.check`.
  """
  if acl not in _EVERYBODY:
    _current.check(caller_names(context), acl, what)


def check_server(context: grpc.ServicerContext, what: str) -> None:
  """Checks that a gRPC call comes from one of the cell's servers.

  See `Access.check_server`.
  """
  _current.check_server(caller_names(context), what)


def trust(proxies: Collection[str]) -> None:
  """Sets the names of the peers that may call for other users."""
  global _proxies
  _proxies = frozenset(proxies)


def peer_names(context: grpc.ServicerContext) -> tuple[str, ...]:
  """Returns the names in the certificate of the peer.

  They are its subject alternative names: URIs, DNS names and email addresses. A
  certificate without any has its common name. A peer without a certificate has
  none.
  """
  properties = context.auth_context()
  if properties.get('transport_security_type') != _SECURE:
    return ()
  values = [n for kind in _PROPERTIES for n in properties.get(kind, ())]
  if not values:
    values = list(properties.get(_COMMON_NAME, ()))
  texts = (n.decode('ascii', 'replace') for n in values)
  return tuple(text for text in texts if acl_file.NAME.fullmatch(text))


def names_in(certificate: Mapping[str, Any]) -> tuple[str, ...]:
  """Returns the names in a certificate that an HTTP port has verified.

  Args:
    certificate: The result of `ssl.SSLSocket.getpeercert`.
  """
  alternative = certificate.get('subjectAltName', ())
  values = [
    value for kind in _ALTERNATIVES for its, value in alternative if its == kind
  ]
  if not values:
    values = [
      value
      for part in certificate.get('subject', ())
      for key, value in part
      if key == 'commonName'
    ]
  return tuple(name for name in values if acl_file.NAME.fullmatch(name))


def caller_names(context: grpc.ServicerContext) -> tuple[str, ...]:
  """Returns all verified names of the caller; none if it has none."""
  own = peer_names(context)
  claims = [
    value
    for key, value in context.invocation_metadata() or ()
    if key == METADATA_KEY
  ]
  if not claims:
    return own
  if not _proxies.intersection(own):
    # The gateway does not even get its own rights. A gateway that is not a
    # trusted proxy must not lend its rights to its users.
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
  """Returns the first verified name of the caller, or '' if there is none."""
  names = caller_names(context)
  return names[0] if names else ''


def client_of(context: grpc.ServicerContext) -> str:
  """Returns the caller's verified name, or else the peer's host."""
  return caller_name(context) or _host(context.peer())


def _host(peer: str) -> str:
  """Returns the host in a gRPC peer.

  A peer is "ipv4:1.2.3.4:567", "ipv6:%5B::1%5D:567" or "unix:...".
  """
  kind, _, rest = urllib.parse.unquote(peer).partition(':')
  if kind not in ('ipv4', 'ipv6'):
    return peer
  return rest.rpartition(':')[0].strip('[]')


def _warn(own: tuple[str, ...]) -> None:
  who = ', '.join(own) or 'a peer without a certificate'
  if who not in _warned and len(_warned) < 100:
    _warned.add(who)
    _logger.warning(
      '%s calls for other callers, but is not in --trusted_proxies. It is'
      ' treated as an unknown caller',
      who,
    )
