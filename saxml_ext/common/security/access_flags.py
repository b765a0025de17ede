"""Defines the flags for a server's address and its access control lists."""

from absl import flags
from absl import logging

from saxml_ext.common import flag_rules
from saxml_ext.common import net
from saxml_ext.common import user_path
from saxml_ext.common.security import access
from saxml_ext.common.security import acl_file
from saxml_ext.common.security import tls
from saxml_ext.common.security import tls_flags

_HOST = flags.DEFINE_string(
  'host',
  '',
  'The address of the interface for --port, such as 127.0.0.1 for this'
  ' machine only. Default: all interfaces.',
)
_ACL_FILE = flags.DEFINE_string(
  'acl_file',
  None,
  'The JSON file of access control lists, {"acl/<name>": ["<member>", ...]}.'
  ' Default: acls.json beside the config of the cell.',
)
_TRUSTED_PROXIES = flags.DEFINE_list(
  'trusted_proxies',
  [],
  'The names in the certificates of gateways that may call on behalf of'
  ' callers whom they have verified.',
)
flag_rules.act_only('with --tls_ca_file', tls_flags.ca_file, 'trusted_proxies')


def host() -> str:
  """Returns the address to listen on. '' is every interface."""
  return '127.0.0.1' if _HOST.value == 'localhost' else _HOST.value


def warn_if_open(lists: access.Access) -> None:
  """Logs a warning if anyone on the network may change the cell.

  Args:
    lists: The access lists of this server.
  """
  settings = tls.current()
  proven = bool(settings.ca_file) and settings.require_client_certs
  if net.is_loopback(host()) or proven or not lists.admits_everybody():
    return
  logging.warning(
    'Anyone who can reach this server can publish, load and unload models,'
    ' because it listens on %s without %s. Listen on this machine only with'
    ' --host=127.0.0.1, or see docs/security.md.',
    host() or 'all interfaces',
    'access lists' if settings.is_set else 'TLS and access lists',
  )


def open_access(sax_root: str, sax_cell: str) -> access.Access:
  """Returns the lists that the flags name, and keeps reading them.

  Args:
    sax_root: The root directory of all cells.
    sax_cell: The cell, "/sax/<cell>"; '' if the server joins none.

  Raises:
    InvalidArgument: A flag has an invalid name.
    FailedPrecondition: A file cannot be used; see `Access.check_usable`.
  """
  for name in _TRUSTED_PROXIES.value:
    acl_file.check_name(name)
  access.trust(_TRUSTED_PROXIES.value)
  path = user_path.resolve(_ACL_FILE.value) or ''
  if sax_cell:
    opened = access.Access.from_cell(sax_root, sax_cell, path)
  else:
    opened = access.Access(path)
  opened.check_usable(lists_too=bool(path))
  opened.follow()
  return opened
