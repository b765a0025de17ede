"""Flags of access control; importing this module gives them to a server."""

from absl import flags

from saxml_ext.common import user_path
from saxml_ext.common.security import access
from saxml_ext.common.security import caller

_ACL_FILE = flags.DEFINE_string(
  'acl_file',
  None,
  'JSON file of access control lists, {"acl/<name>": ["<member>", ...]}.'
  ' Default: acls.json beside the config of the cell.',
)
_TRUSTED_PROXIES = flags.DEFINE_list(
  'trusted_proxies',
  [],
  'Names in the certificates of gateways that may call for others, whom they'
  ' have verified themselves.',
)


def open_access(sax_root: str, sax_cell: str) -> access.Access:
  """The lists that the flags name, read again and again.

  Args:
    sax_root: where cells keep their files.
    sax_cell: "/sax/<cell>"; '' if the server joins none.

  Raises:
    InvalidArgument: a name cannot be one.
  """
  for name in _TRUSTED_PROXIES.value:
    caller.check_name(name)
  caller.trust(_TRUSTED_PROXIES.value)
  path = user_path.resolve(_ACL_FILE.value) or ''
  if sax_cell:
    opened = access.Access.of_cell(sax_root, sax_cell, path)
  else:
    opened = access.Access(path)
  opened.follow()
  return opened
