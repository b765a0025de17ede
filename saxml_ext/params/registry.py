"""Serving params by name, which `saxutil publish` calls the model path.

A class is registered under a dotted name. The name need not be the Python path
of the class. So a cell can serve params under the names of upstream Sax.
`register_table` makes the classes in the table of a family.
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

# An admin server applies the same rule to model paths.
_NAME = re.compile(r'[A-Za-z][A-Za-z0-9_.-]*', re.ASCII)
_classes: dict[str, type] = {}
# The classes of tables by full name, including unpublished ones; '' is the
# template.
_made: dict[str, type] = {'': template.ServableLMParams}


def register(
  name: str, *, aliases: tuple[str, ...] = ()
) -> Callable[[_Params], _Params]:
  """Returns a class decorator that registers serving params.

  Args:
    name: The model path under which the class is published.
    aliases: The further model paths of the same class.

  Raises:
    ValueError: A name is malformed or already used by another class.
  """

  def decorate(cls: _Params) -> _Params:
    for path in (name, *aliases):
      if not _NAME.fullmatch(path):
        raise ValueError(
          f'{path!r} is not a model path. It must start with a letter and'
          ' contain only letters, digits, "_", "." and "-".'
        )
      if path in _classes:
        raise ValueError(
          f'{path!r} is already registered by {_classes[path].__qualname__}'
        )
      _classes[path] = cls
    return cls

  return decorate


def names() -> list[str]:
  """Returns all registered model paths, aliases included, sorted."""
  return sorted(_classes)


def lookup(name: str) -> type:
  """Returns the serving params registered under `name`.

  Raises:
    errors.InvalidArgument: The name is not registered. The message has the most
      similar names.
  """
  if name in _classes:
    return _classes[name]
  near = ' or '.join(ids.near_misses(name, _classes))
  hint = f'Did you mean {near}?'
  if not near:
    hint = 'Available: ' + ', '.join(names())
  raise errors.InvalidArgument(f'no serving params are named {name!r}. {hint}')


def register_table(table: servable.Table) -> dict[str, type]:
  """Returns the classes of a table by their own names.

  A class that does not exist yet is made and registered.

  Raises:
    ValueError: A name is malformed or already used.
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
