"""Whether a call may be made, by whoever makes it.

Everything fails closed: a caller whom nobody verified, a list that does not
exist and a file that cannot be read all mean PERMISSION_DENIED. Only what is
for `acl_file.ALL`, or has no list at all, is for everybody.
"""

from collections.abc import Collection
import os
from typing import TypeAlias

from google.protobuf import message
import grpc

from saxml_ext.common import cell as cell_lib
from saxml_ext.common import errors
from saxml_ext.common import storage
from saxml_ext.common.security import acl_file
from saxml_ext.common.security import caller
from saxml_ext.protobuf import admin_pb2

# Seconds in which a changed file is noticed, as other admin servers do.
_INTERVAL = 5.0
_EVERYBODY = ('', acl_file.ALL)
# What no list can be named: nobody is on it.
_NOBODY = 'acl/'

Names: TypeAlias = Collection[str]


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
      names: verified ones of the caller, see `caller`.
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
    _current.check(caller.names(context), acl, what)


def check_server(context: grpc.ServicerContext, what: str) -> None:
  """See `Access.check_server`; of a call, by the same lists."""
  _current.check_server(caller.names(context), what)
