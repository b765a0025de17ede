"""Serving params by name, which is what `saxutil publish` calls the model path.

A class is registered under a dotted name. The name need not be the Python path
of the class, so that a cell can serve params under the names that upstream Sax
uses for them. `register_table` makes the classes that a family lists.
"""

from collections.abc import Callable
import inspect
import re
from typing import TypeVar

from saxml_ext.common import errors
from saxml_ext.common import ids
from saxml_ext.families import servable
from saxml_ext.params import template

_Params = TypeVar('_Params', bound=type)

# The rule that an admin server applies to model paths.
_NAME = re.compile(r'[A-Za-z][A-Za-z0-9_.-]*', re.ASCII)
_classes: dict[str, type] = {}
# Classes of tables by whole name, unpublished ones included; '' is the template.
_made: dict[str, type] = {'': template.ServableLMParams}


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
  """Returns all registered model paths, aliases included, sorted."""
  return sorted(_classes)


def lookup(name: str) -> type:
  """Returns the serving params registered under `name`.

  Raises:
    errors.InvalidArgument: nothing is; the message names the nearest ones.
  """
  if name in _classes:
    return _classes[name]
  near = ' or '.join(ids.near_misses(name, _classes))
  hint = f'did you mean {near}?'
  if not near:
    hint = 'this server knows: ' + ', '.join(names())
  raise errors.InvalidArgument(f'no serving params named {name!r}; {hint}')


def register_table(table: servable.Table) -> dict[str, type]:
  """Returns the classes of a table by their own names.

  Each class is made and registered when it is first asked for.

  Raises:
    ValueError: A name is malformed or taken.
    KeyError: A base is in neither this table nor an earlier one.
  """
  return {
    name.rpartition('.')[2]: _made.get(name) or _make(name, params)
    for name, params in table.items()
  }


def _make(name: str, params: servable.Params) -> type:
  package, _, own_name = name.rpartition('.')
  base = params.base
  if base and '.' not in base:
    base = f'{package}.{base}'
  attributes = {'__doc__': inspect.cleandoc(params.doc), **params.attributes}
  cls = type(own_name, (_made[base],), attributes)
  if not own_name.startswith('_'):
    register(name, aliases=params.aliases)(cls)
  return _made.setdefault(name, cls)
