"""A cell's access control lists: a JSON file of names and their members.

    {
      "acl/servers": ["spiffe://example.org/sax/server"],
      "acl/team": ["alice@example.org", "reports-gateway-key"]
    }

A member is a verified name, see `access.caller_names`. The file stands beside
the cell's config, as <sax_root>/sax/<cell>/acls.json, so that who may write the
one may write the other.
"""

from collections.abc import Callable, Mapping
import dataclasses
import json
import re
from typing import Any

from saxml_ext.common import cell as cell_lib
from saxml_ext.common import errors

# Everybody; it is in every cell and in no file.
ALL = 'acl/all'
# Who may join a cell, and load models on its servers.
SERVERS = 'acl/servers'
_PREFIX = 'acl/'
# Printable ASCII, as metadata has to be, without what separates fields.
NAME = re.compile(r'[!-~]{1,256}')
_FILE = 'acls.json'

# Data methods for which a model can have an ACL.
METHODS = frozenset(
  {
    'am.recognize',
    'lm.embed',
    'lm.generate',
    'lm.generate_stream',
    'lm.gradient',
    'lm.score',
    'mm.generate',
    'vm.classify',
    'vm.detect',
    'vm.embed',
    'vm.generate',
    'vm.image_to_image',
    'vm.image_to_text',
    'vm.text_and_image_to_text',
    'vm.video_to_text',
  }
)


@dataclasses.dataclass(frozen=True)
class Lists:
  """The lists of a cell.

  Attributes:
    members: the verified names on each list.
    exists: whether there is a file; if not, a cell has `ALL` only.
    usable: whether it could be read; if not, nobody is on any list.
  """

  members: Mapping[str, frozenset[str]]
  exists: bool = True
  usable: bool = True


ABSENT = Lists({}, exists=False)
BROKEN = Lists({}, usable=False)


def check_name(name: str) -> None:
  """Raises InvalidArgument if nobody can have such a name."""
  if not NAME.fullmatch(name):
    raise errors.InvalidArgument(
      f'{name[:80]!r} is no name: it has 1 to 256 characters of printable ASCII'
      ' and no spaces'
    )


def path_of(sax_root: str, cell: str) -> str:
  """Path of a cell's file."""
  return f'{cell_lib.cell_dir(sax_root, cell)}/{_FILE}'


def parse(data: bytes) -> Lists:
  """Reads the file's content.

  Raises:
    InvalidArgument: it is not of the form above; nothing of it counts then.
  """
  try:
    found = json.loads(data.decode('utf-8'), object_pairs_hook=_unique)
  except (ValueError, RecursionError) as e:
    raise errors.InvalidArgument(f'it is not JSON in UTF-8: {e}') from e
  if not isinstance(found, dict):
    raise errors.InvalidArgument(
      'it is no JSON object: write {"acl/<name>": ["<member>", ...], ...}'
    )
  return Lists({name: _members(name, value) for name, value in found.items()})


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
  result = dict(pairs)
  if len(result) < len(pairs):
    raise ValueError('a list is there twice; write each one once')
  return result


def _members(name: str, value: Any) -> frozenset[str]:
  if not name.startswith(_PREFIX) or name == _PREFIX:
    raise errors.InvalidArgument(
      f'{name!r} is not a name of a list: it has to begin with {_PREFIX}'
    )
  if name == ALL:
    raise errors.InvalidArgument(
      f'{ALL} is everybody and can have no members: leave it out, and name'
      ' another list where not everybody is meant'
    )
  if not isinstance(value, list) or not all(isinstance(m, str) for m in value):
    raise errors.InvalidArgument(
      f'{name} is no list of texts: write ["<member>", ...]'
    )
  for member in value:
    check_name(member)
  return frozenset(value)


def check_acl_name(name: str) -> None:
  """Checks the name of an ACL in a cell that has no file of them.

  See `security.access` for one that has.

  Args:
    name: empty for "everybody", or "acl/...".

  Raises:
    InvalidArgument: the name is not of that form.
    Unimplemented: it is, but there is no database of ACLs to look it up in.
  """
  if not name:
    return
  if not name.startswith(_PREFIX):
    raise errors.InvalidArgument(
      f'{name} is not a valid ACL name (must start with one of [{_PREFIX}])'
    )
  raise errors.Unimplemented('ACL check is not supported')


def check_method(method: str) -> None:
  """Checks that a method can have an ACL; raises InvalidArgument."""
  if method not in METHODS:
    known = ' '.join(f'{name}:{{}}' for name in sorted(METHODS))
    raise errors.InvalidArgument(
      f'{method} is not a valid method name (map[{known}])'
    )


def check_method_acls(
  items: Mapping[str, str], check_name: Callable[[str], None] = check_acl_name
) -> None:
  """Checks a model's map from method to ACL name.

  Args:
    items: the map.
    check_name: checks the name of an ACL.

  Raises:
    InvalidArgument: a method is not valid.
    SaxError: see `check_name`.
  """
  for method, name in items.items():
    check_method(method)
    check_name(name)
