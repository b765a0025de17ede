"""A cell's access control lists: a JSON file of names and their members.

    {
      "acl/servers": ["spiffe://example.org/sax/server"],
      "acl/team": ["alice@example.org", "reports-gateway-key"]
    }

A member is a verified name; see `access.caller_names`. The file is beside the
cell's config, as <sax_root>/sax/<cell>/acls.json. So the same users may write
both files.
"""

from collections.abc import Callable, Mapping
import dataclasses
import json
import re
from typing import Any

from saxml_ext.common import cell as cell_lib
from saxml_ext.common import errors
from saxml_ext.common import ids

# This list has all callers. Every cell has it, and no file does.
ALL = 'acl/all'
# Members may join a cell, and load models on its servers.
SERVERS = 'acl/servers'
_PREFIX = 'acl/'
# Names are printable ASCII, which metadata requires, without the characters
# that separate fields.
NAME = re.compile(r'[!-~]{1,256}')
# The limit of the name of a list in characters.
_MAX_NAME = 256
_FILE = 'acls.json'

# A model can have a list for each of these data methods.
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
    members: The verified names on each list.
    exists: True if there is a file. Otherwise, a cell has only `ALL`.
    usable: True if the file could be read. Otherwise, nobody is on any list.
  """

  members: Mapping[str, frozenset[str]]
  exists: bool = True
  usable: bool = True


ABSENT = Lists({}, exists=False)
BROKEN = Lists({}, usable=False)


def check_name(name: str) -> None:
  """Raises InvalidArgument if a name cannot be that of a caller."""
  if not NAME.fullmatch(name):
    raise errors.InvalidArgument(
      f'{name[:80]!r} is not a name. A name has 1 to 256 characters of'
      ' printable ASCII and no spaces'
    )


def path_of(sax_root: str, cell: str) -> str:
  """Returns the path of a cell's file."""
  return f'{cell_lib.cell_dir(sax_root, cell)}/{_FILE}'


def parse(data: bytes) -> Lists:
  """Parses the contents of the file.

  Raises:
    InvalidArgument: The contents are malformed. Then no part of them is used.
  """
  try:
    lists = json.loads(data.decode('utf-8'), object_pairs_hook=_unique)
  except (ValueError, RecursionError) as e:
    raise errors.InvalidArgument(f'the file is not JSON in UTF-8: {e}') from e
  if not isinstance(lists, dict):
    raise errors.InvalidArgument(
      'this is not a JSON object. Write {"acl/<name>": ["<member>", ...], ...}'
    )
  return Lists({name: _members(name, value) for name, value in lists.items()})


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
  result = dict(pairs)
  if len(result) < len(pairs):
    raise ValueError('a list occurs twice. Write each list once')
  return result


def _members(name: str, value: Any) -> frozenset[str]:
  if not name.startswith(_PREFIX) or name == _PREFIX:
    raise errors.InvalidArgument(
      f'{ids.quote(name)} is not the name of a list. A name begins with {_PREFIX}'
    )
  if name == ALL:
    raise errors.InvalidArgument(
      f'{ALL} is everybody, so it cannot have members. Omit it, and use'
      ' another list to restrict access'
    )
  if not isinstance(value, list) or not all(isinstance(m, str) for m in value):
    raise errors.InvalidArgument(
      f'{ids.shorten(name)} is not a list of texts. Write ["<member>", ...]'
    )
  for member in value:
    check_name(member)
  return frozenset(value)


def check_acl_name(name: str) -> None:
  """Checks the name of a list in a cell that has no file of lists.

  `security.access` checks names in a cell that has one.

  Args:
    name: The name: "acl/...", or '' for everybody.

  Raises:
    InvalidArgument: The name is malformed.
    Unimplemented: The name is well-formed, but there is no file with the list.
  """
  if not name:
    return
  if len(name) > _MAX_NAME:
    raise errors.InvalidArgument(
      f'the ACL name {ids.quote(name)} is too long. The limit is {_MAX_NAME}'
      ' characters'
    )
  if not name.startswith(_PREFIX):
    raise errors.InvalidArgument(
      f'{ids.shorten(name)} is not a valid ACL name (must start with one of [{_PREFIX}])'
    )
  raise errors.Unimplemented('ACL check is not supported')


def check_method(method: str) -> None:
  """Checks that a method can have a list; raises InvalidArgument."""
  if method not in METHODS:
    known = ' '.join(f'{name}:{{}}' for name in sorted(METHODS))
    raise errors.InvalidArgument(
      f'{ids.shorten(method)} is not a valid method name (map[{known}])'
    )


def check_method_acls(
  items: Mapping[str, str], check_name: Callable[[str], None] = check_acl_name
) -> None:
  """Checks a model's map from methods to names of lists.

  Args:
    items: The map.
    check_name: The function that checks the name of a list.

  Raises:
    InvalidArgument: A method is not valid.
    SaxError: `check_name` raised the error.
  """
  for method, name in items.items():
    check_method(method)
    check_name(name)
