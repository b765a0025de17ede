"""Access control lists: what may be named, not who is on them.

Who is on them is in `security.access`.
"""

from collections.abc import Callable, Mapping

from saxml_ext.common import errors

_PREFIX = 'acl/'

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
