"""Pieces of HTML: whatever is given as text is escaped here, in one place."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
import html
import json
import os
import string
from typing import Any

from plotly import offline

from saxml_ext.common import files

_ASSETS = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'assets')

_DOCUMENT = string.Template("""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>$title</title>
<link rel="icon" href="data:,">
<style>
$style
</style>
</head>
<body>
<a class="skip" href="#main">Skip to the content</a>
$body
$scripts
</body>
</html>
""")


class Html(str):
  """Text that is HTML already; `text` leaves it as it is."""


def text(value: object) -> Html:
  """A value as HTML: escaped, unless it is HTML already."""
  if isinstance(value, Html):
    return value
  return Html(html.escape(str(value), quote=True))


def join(parts: Iterable[object]) -> Html:
  return Html('\n'.join(text(part) for part in parts))


def element(name: str, /, *content: object, **attributes: object) -> Html:
  """Returns an element. `class_` and `aria_label` name its attributes."""
  return Html(f'<{name}{_attributes(attributes)}>{join(content)}</{name}>')


def section(identifier: str, title: str, *parts: object) -> Html:
  heading = element('h2', title, id=f'{identifier}-title')
  return element(
    'section',
    heading,
    *parts,
    id=identifier,
    aria_labelledby=f'{identifier}-title',
  )


def paragraph(content: object, class_: str | None = None) -> Html:
  return element('p', content, class_=class_)


def header(over: str, title: str, *parts: object) -> Html:
  """Returns the header of a page, with a line above its title."""
  heading = element('h1', title)
  return element('header', paragraph(over, 'over'), heading, *parts)


def bullets(items: Iterable[object], class_: str | None = None) -> Html:
  """Returns a list without numbers."""
  return element('ul', *(element('li', item) for item in items), class_=class_)


def table(
  headings: Sequence[object],
  rows: Iterable[Sequence[object]],
  caption: str,
  **attributes: object,
) -> Html:
  """A table whose first column names the rows."""
  head = (element('th', heading, scope='col') for heading in headings)
  body = (
    element(
      'tr',
      element('th', name, scope='row'),
      *(element('td', cell) for cell in cells),
    )
    for name, *cells in rows
  )
  return table_of(head, body, caption, **attributes)


def table_of(
  head: Iterable[object],
  body: Iterable[object],
  caption: str,
  **attributes: object,
) -> Html:
  """Returns a table of the cells of its head and the rows of its body."""
  table = element(
    'table',
    element('caption', caption),
    element('thead', element('tr', *head)),
    element('tbody', *body),
    **attributes,
  )
  return element('div', table, class_='scroll', tabindex=0)


def pairs(values: Mapping[str, object], caption: str) -> Html:
  """A table of names and what they stand for; of tables within, a.b."""
  rows = [(name, _plain(value)) for name, value in _flat(values)]
  return table(('Name', 'Value'), rows, caption, class_='pairs')


def void(name: str, /, **attributes: object) -> Html:
  """An element that has no content and no end."""
  return Html(f'<{name}{_attributes(attributes)}>')


def choice(
  identifier: str,
  options: Iterable[tuple[str, str]],
  chosen: str,
  **attributes: object,
) -> Html:
  """A choice among options: values, and what is shown of them."""
  inner = (
    element(
      'option', shown, value=value, selected='' if value == chosen else None
    )
    for value, shown in options
  )
  return element('select', *inner, id=identifier, **attributes)


def chart(
  identifier: str, label: str, caption: str, wide: bool = False
) -> Html:
  """The place of a chart that charts.js draws from the data of that name."""
  area = element(
    'div',
    class_='chart',
    id=f'chart-{identifier}',
    role='img',
    aria_label=label,
  )
  return element(
    'figure',
    area,
    element('figcaption', caption),
    class_='plot wide' if wide else 'plot',
  )


def card(label: str, value: object, detail: object = '') -> Html:
  """A figure of the headline."""
  return element(
    'div',
    element('dt', label),
    element('dd', element('b', value), element('small', detail)),
    class_='card',
  )


def data(identifier: str, value: object) -> Html:
  """JSON for the page's scripts; no text in it can end the element."""
  encoded = json.dumps(value, allow_nan=False, separators=(',', ':'))
  for character in '<>&\u2028\u2029':
    encoded = encoded.replace(character, f'\\u{ord(character):04x}')
  return Html(
    f'<script type="application/json" id="{text(identifier)}">{encoded}</script>'
  )


def asset(name: str) -> str:
  """The text of a file of assets/."""
  with open(os.path.join(_ASSETS, name), encoding='utf-8') as file:
    return file.read()


def document(
  title: str, body: object, scripts: Sequence[str], charts: bool
) -> str:
  """A whole page, which loads nothing from anywhere.

  Args:
    title: of the window.
    body: HTML.
    scripts: names of files of assets/ that run at the page's end.
    charts: whether plotly.js (4.8 MB) is part of the page.
  """
  code = [offline.get_plotlyjs()] if charts else []
  code += [asset(name) for name in scripts]
  return _DOCUMENT.substitute(
    title=text(title),
    style=asset('page.css'),
    body=text(body),
    scripts='\n'.join(f'<script>{each}</script>' for each in code),
  )


def write(path: str, page: str) -> None:
  """Writes a page, whole or not at all.

  Raises:
    OSError: it cannot be written.
  """
  os.makedirs(os.path.dirname(path), exist_ok=True)
  with files.replacing(path) as file:
    file.write(page)


def number(value: float | None) -> str:
  """A figure as people read it: four digits that count, whole thousands."""
  if value is None:
    return '–'
  if abs(value) >= 1000:
    return f'{value:,.0f}'
  return f'{value:.4g}'


def _attributes(attributes: Mapping[str, object]) -> str:
  return ''.join(
    f' {key.rstrip("_").replace("_", "-")}="{text(value)}"'
    for key, value in attributes.items()
    if value is not None
  )


def _flat(values: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
  for name, value in values.items():
    if isinstance(value, Mapping) and value:
      for inner, each in _flat(value):
        yield f'{name}.{inner}', each
    else:
      yield name, value


def _plain(value: Any) -> object:
  if value in (None, '', (), [], {}):
    return '–'
  if not isinstance(value, (list, tuple)):
    return value
  if all(isinstance(each, str) for each in value):
    return bullets(value)
  return json.dumps(value)
