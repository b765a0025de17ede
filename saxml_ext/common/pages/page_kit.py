"""Renders HTML pages from jinja2 templates.

A page loads nothing from other sites. Its template is beside the code that
gathers its data. The template extends `base.html` and writes its parts with the
macros of `parts.html`. Both are in this package's `templates/`, with the style
that all pages share.
"""

from collections.abc import Iterator, Mapping
import functools
import json
import os
import pathlib
from typing import Any

import jinja2

from saxml_ext.common import files

_KIT = pathlib.Path(__file__).parent / 'templates'
_NONE = '–'


def render(template: pathlib.Path, **data: Any) -> str:
  """Renders a page.

  Args:
    template: The template. It can load files beside it and files of the kit by
      their names.
    **data: The values that the template shows. Texts are escaped.
  """
  return _environment(template.parent).get_template(template.name).render(data)


def asset(template: pathlib.Path) -> str:
  """Returns the text of a file that is beside a template or in the kit."""
  environment = _environment(template.parent)
  assert environment.loader is not None
  return environment.loader.get_source(environment, template.name)[0]


def write(path: str, page: str) -> None:
  """Writes a page atomically, and creates its folder if it is missing.

  Raises:
    OSError: The page cannot be written.
  """
  os.makedirs(os.path.dirname(path), exist_ok=True)
  with files.replacing(path) as file:
    file.write(page)


def number(value: float | None) -> str:
  """Formats a number with four significant digits, or as whole thousands."""
  if value is None:
    return _NONE
  return f'{value:,.0f}' if abs(value) >= 1000 else f'{value:.4g}'


def flat(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
  """Yields names and values to show. The name of a nested value is "a.b".

  A value is a text, or a list of texts.
  """
  for name, value in values.items():
    if isinstance(value, Mapping) and value:
      yield from ((f'{name}.{inner}', item) for inner, item in flat(value))
    elif value in (None, '', (), [], {}):
      yield name, _NONE
    elif not isinstance(value, list | tuple):
      yield name, str(value)
    elif all(isinstance(item, str) for item in value):
      yield name, list(value)
    else:
      yield name, json.dumps(value)


@functools.cache
def _environment(folder: pathlib.Path) -> jinja2.Environment:
  """Returns the jinja2 environment for a folder and the kit."""
  environment = jinja2.Environment(
    autoescape=True,
    loader=jinja2.FileSystemLoader([folder, _KIT]),
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=jinja2.StrictUndefined,
  )
  # JSON has no NaN, and scripts would fail to parse it.
  environment.policies['json.dumps_kwargs'] = {
    'allow_nan': False,
    'separators': (',', ':'),
  }
  environment.filters |= {'flat': flat, 'number': number}
  environment.globals['asset'] = lambda name: asset(folder / name)
  environment.globals['parts'] = environment.get_template('parts.html').module
  return environment
