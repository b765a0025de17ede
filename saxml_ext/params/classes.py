"""Makes classes of the serving params that families list, and registers them."""

import inspect

from saxml_ext.families import servable
from saxml_ext.params import registry
from saxml_ext.params import template

# By whole name, those that are not published too; '' is the template.
_made: dict[str, type] = {'': template.ServableLMParams}


def register(table: servable.Table) -> dict[str, type]:
  """Returns the classes of a table by their own names.

  Each class is made and registered when it is first asked for.

  Raises:
    ValueError: A name is malformed or taken.
    KeyError: A base is in neither this table nor an earlier one.
  """
  return {
    name.rpartition('.')[2]: _made.get(name) or _register(name, params)
    for name, params in table.items()
  }


def _register(name: str, params: servable.Params) -> type:
  package, _, own_name = name.rpartition('.')
  base = params.base
  if base and '.' not in base:
    base = f'{package}.{base}'
  attributes = {'__doc__': inspect.cleandoc(params.doc), **params.attributes}
  cls = type(own_name, (_made[base],), attributes)
  if not own_name.startswith('_'):
    registry.register(name, aliases=params.aliases)(cls)
  return _made.setdefault(name, cls)
