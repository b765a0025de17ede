"""Pieces of HTML that the status pages are made of; no page needs another file.

All functions take plain text and escape it, unless their names for arguments
say that it is HTML already.
"""

from collections.abc import Iterable, Sequence
import html
import re

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
_STYLE = """
:root{--text:#1c2430;--dim:#5b6676;--line:#d9dee6;--head:#f1f4f8;--page:#fff;
--link:#0b57d0;--good:#136c34;--goodbg:#dff3e4;--busy:#7a5200;--busybg:#fdf0cf;
--bad:#a3161f;--badbg:#fbe0e1;--off:#4b5563;--offbg:#e8ebf0}
@media(prefers-color-scheme:dark){:root{--text:#e4e8ee;--dim:#9aa5b4;
--line:#353c47;--head:#232933;--page:#171b21;--link:#8ab4f8;--good:#8fdfa8;
--goodbg:#163d24;--busy:#f3cf7a;--busybg:#43340f;--bad:#f6a5aa;--badbg:#4d1a1e;
--off:#b7c0cc;--offbg:#2c333d}}
body{font:15px/1.45 system-ui,sans-serif;color:var(--text);
background:var(--page);margin:2rem auto;max-width:90rem;padding:0 1.5rem}
h1{font-size:1.5rem;margin:.2rem 0}h2{font-size:1.15rem;margin:2rem 0 .6rem}
a{color:var(--link);text-decoration:none}a:hover{text-decoration:underline}
nav,.dim{color:var(--dim)}nav a{margin-right:1rem}
table{border-collapse:collapse;width:100%}
.wide{overflow-x:auto;border:1px solid var(--line);border-radius:8px}
th,td{padding:.45rem .8rem;text-align:left;vertical-align:top;
border-bottom:1px solid var(--line)}tr:last-child td{border-bottom:0}
th{background:var(--head);font-weight:600;white-space:nowrap}
td.number,th.number{text-align:right;font-variant-numeric:tabular-nums}
td{overflow-wrap:anywhere}.short{white-space:nowrap}
.state{display:inline-block;padding:.05rem .55rem;border-radius:1rem;
font-size:.85em;font-weight:600;white-space:nowrap;color:var(--off);
background:var(--offbg)}
.good{color:var(--good);background:var(--goodbg)}
.busy{color:var(--busy);background:var(--busybg)}
.bad{color:var(--bad);background:var(--badbg)}
"""


def page(title: str, heading: str, body_html: str) -> str:
  """A whole page that loads itself anew from time to time."""
  return (
    '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width">'
    f'<meta http-equiv="refresh" content="{_REFRESH_SECS}">'
    f'<title>{html.escape(title)}</title><style>{_STYLE}</style></head><body>'
    f'<nav><a href="/">Cell</a><a href="/metrics">Metrics</a></nav>'
    f'<h1>{html.escape(heading)}</h1>{body_html}</body></html>\n'
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
  """A long dotted name or path, which may be broken after dots and slashes."""
  return re.sub(r'([./]+)', r'\1<wbr>', html.escape(text))


def names(texts: Iterable[str]) -> str:
  """Names, separated by commas; a line may end between them only."""
  return ', '.join(
    f'<span class="short">{html.escape(text)}</span>' for text in texts
  )


def lines(parts_html: Iterable[str]) -> str:
  """One below the other."""
  return '<br>'.join(parts_html)


def table(
  title: str,
  header: Sequence[str],
  rows_html: Iterable[Sequence[str]],
  numbers: Sequence[str] = (),
  short: Sequence[str] = (),
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
