"""Pieces of HTML that the status pages are made of.

All functions take plain text and escape it, unless their names for arguments
say that it is HTML already.
"""

from collections.abc import Iterable, Sequence
import html

# How a state is coloured; others are grey.
_KINDS = {
  'LOADED': 'good',
  'Active': 'good',
  'Ready': 'good',
  'LOADING': 'busy',
  'Loading': 'busy',
  'Dormant': 'busy',
  'Incomplete': 'busy',
  'FAILED': 'bad',
  'Failed': 'bad',
  'Lost': 'bad',
  'Not assigned': 'bad',
}
_REFRESH_SECS = 10


def page(
  title: str,
  heading: str,
  body_html: str,
  changes: bool = False,
  live: bool = True,
) -> str:
  """A whole page.

  Args:
    title: of the window.
    heading: of the page.
    body_html: what stands below it.
    changes: offer to publish a model.
    live: keep it up to date; without scripts it loads itself anew.
  """
  refresh = (
    f'<noscript><meta http-equiv="refresh" content="{_REFRESH_SECS}">'
    '</noscript><script src="/static/live.js" defer></script>'
  )
  publish = '<a class="button" href="/publish">Publish a model</a>'
  return (
    '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width">'
    f'<title>{html.escape(title)}</title>'
    '<link rel="stylesheet" href="/static/page.css">'
    f'{refresh if live else ""}</head><body>'
    '<nav><a href="/">Cell</a><a href="/metrics">Metrics</a>'
    f'{publish if changes else ""}<span id="note" class="note"></span></nav>'
    f'<h1>{html.escape(heading)}</h1>'
    f'<main{" id=live" if live else ""}>{body_html}</main></body></html>\n'
  )


def paragraph(text: str) -> str:
  """A paragraph."""
  return f'<p>{html.escape(text)}</p>'


def state(text: str, prefix: str = '') -> str:
  """A state as a coloured label; `prefix` stands before it in the label."""
  kind = _KINDS.get(text, '')
  return f'<span class="state {kind}">{html.escape(prefix + text)}</span>'


def link(path: str, text: str) -> str:
  """A link to another page."""
  return f'<a href="{html.escape(path)}">{html.escape(text)}</a>'


def model_link(model_id: str) -> str:
  """A link to a model's page."""
  return link('/model' + model_id, model_id)


def server_link(address: str) -> str:
  """A link to a model server's page."""
  return link('/server/' + address, address)


def path(text: str) -> str:
  """A long dotted name or path, which may be broken anywhere."""
  return f'<span class="path">{html.escape(text)}</span>'


def names(texts: Iterable[str]) -> str:
  """Names, separated by commas; a line may end between them only."""
  return ', '.join(
    f'<span class="short">{html.escape(text)}</span>' for text in texts
  )


def tiles(values: Iterable[tuple[str, str]]) -> str:
  """Figures that matter most, each with what it counts."""
  return (
    '<div class="tiles">'
    + ''.join(
      f'<div class="tile"><strong>{html.escape(value)}</strong>'
      f'<span>{html.escape(name)}</span></div>'
      for value, name in values
    )
    + '</div>'
  )


def error(text: str) -> str:
  """Says what went wrong."""
  return f'<p class="error" role="alert">{html.escape(text)}</p>'


def lines(parts_html: Iterable[str]) -> str:
  """One below the other."""
  return '<br>'.join(parts_html)


def table(
  title: str,
  header: Sequence[str],
  rows_html: Iterable[Sequence[str]],
  numbers: Sequence[str] = (),
  short: Sequence[str] = (),
  long: Sequence[str] = (),
  pinned: Sequence[str] = (),
  optional: Sequence[str] = (),
  empty: str = 'None.',
) -> str:
  """A table with a heading.

  Args:
    title: of the table.
    header: names of the columns.
    rows_html: cells, as HTML.
    numbers: names of columns that are aligned to the right.
    short: names of columns whose cells are not broken into lines.
    long: names of columns of sentences, which need width.
    pinned: Names of columns that stay in sight in a narrow window.
    optional: names of columns that are left out if all their cells are empty.
    empty: what stands there instead of a table without rows.

  Returns:
    HTML.
  """
  rows_html = list(rows_html)
  kept = [
    i
    for i, name in enumerate(header)
    if name not in optional or any(row[i] for row in rows_html)
  ]
  header = [header[i] for i in kept]
  rows_html = [[row[i] for i in kept] for row in rows_html]
  classes = [
    ' class="number"'
    if h in numbers
    else ' class="short"'
    if h in short
    else ' class="long"'
    if h in long
    else ' class="short pinned"'
    if h in pinned
    else ''
    for h in header
  ]
  body = ''.join(
    '<tr>'
    + ''.join(f'<td{c}>{cell}</td>' for c, cell in zip(classes, row))
    + '</tr>'
    for row in rows_html
  )
  heading = f'<h2>{html.escape(title)}</h2>'
  if not body:
    return f'{heading}<p class="dim">{html.escape(empty)}</p>'
  head = ''.join(
    f'<th{c}>{html.escape(h)}</th>' for c, h in zip(classes, header)
  )
  return (
    f'{heading}<div class="wide"><table><thead><tr>{head}</tr></thead>'
    f'<tbody>{body}</tbody></table></div>'
  )
