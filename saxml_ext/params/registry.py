"""Serving params by name: what `saxutil publish` calls the model path.

A class registers itself under a dotted name. The name need not be the Python
path of the class, so that a cell can serve params under the names that
upstream Sax uses for them.
"""

from collections.abc import Callable
import re
from typing import TypeVar

from saxml_ext.common import errors
from saxml_ext.common import ids

_Params = TypeVar('_Params', bound=type)

# The rule that an admin server applies to model paths.
_NAME = re.compile(r'[A-Za-z][A-Za-z0-9_.-]*', re.ASCII)
_classes: dict[str, type] = {}


def register(
  name: str, *, aliases: tuple[str, ...] = ()
) -> Callable[[_Params], _Params]:
  """Returns a class decorator that registers serving params.

  Args:
    name: the model path under which the class is published.
    aliases: further model paths of the same class.

  Raises:
    ValueError: a name is malformed or already taken by another class.
  """

  def decorate(cls: _Params) -> _Params:
    for each in (name, *aliases):
      if not _NAME.fullmatch(each):
        raise ValueError(
          f'{each!r} is no model path: it must start with a letter and'
          ' hold only letters, digits, "_", "." and "-"'
        )
      if each in _classes:
        raise ValueError(
          f'{each!r} is already registered, by {_classes[each].__qualname__}'
        )
      _classes[each] = cls
    return cls

  return decorate


def names() -> list[str]:
  """All registered model paths, aliases included, sorted."""
  return sorted(_classes)


def lookup(name: str) -> type:
  """Returns the serving params registered under `name`.

  Raises:
    errors.InvalidArgument: nothing is; the message names the nearest ones.
  """
  if name in _classes:
    return _classes[name]
  near = ids.near_misses(name, _classes)
  if near:
    hint = 'did you mean ' + ' or '.join(near) + '?'
  else:
    hint = 'this server knows: ' + ', '.join(names())
  raise errors.InvalidArgument(f'no serving params named {name!r}; {hint}')
