"""Formats tables of plain text.

    +--------------------------------+-------+
    |            GENERATE            | SCORE |
    +--------------------------------+-------+
    | a text that is broken at its   |    -1 |
    | spaces                         |       |
    +--------------------------------+-------+

Headers are centered and in capitals. Numbers are aligned to the right. Programs
parse these tables, so every space counts.
"""

from collections.abc import Callable, Iterable, Sequence
import itertools
import re
import unicodedata

# Longer cells are broken into several lines.
_MAX_WIDTH = 30
# The cost of a line that exceeds the limit because of a long word.
_OVERFLOW_COST = 100_000
_NUMBER = re.compile(r'-?(\d{1,3}(,\d{3})*|\d+)(\.\d+)?', re.ASCII)


def display_width(text: str) -> int:
  """Returns the columns of a line on a terminal; wide characters take two."""
  return sum(_char_width(char) for char in text)


def _char_width(char: str) -> int:
  if unicodedata.combining(char) or unicodedata.category(char) in ('Cc', 'Cf'):
    return 0
  return 2 if unicodedata.east_asian_width(char) in 'WF' else 1


def _line_ends(widths: Sequence[int], limit: int) -> list[int]:
  """Returns where lines should end so that they are filled most evenly.

  The cost of a line is the square of its unused columns. The last line has no
  cost. This function minimizes the sum, starting at the last word.

  Args:
    widths: The widths of the words.
    limit: The width of a line, at least that of every word.

  Returns:
    For each word, the end (exclusive) of the line that begins with it.
  """
  count = len(widths)
  cost = [0] * (count + 1)
  ends = [count] * count
  for begin in reversed(range(count)):
    if sum(widths[begin:]) + count - begin - 1 <= limit:
      continue
    best, width = None, -1
    for end in range(begin + 1, count):
      width += widths[end - 1] + 1
      total = (limit - width) ** 2 + cost[end]
      if width > limit:
        total += _OVERFLOW_COST
      if best is None or total < best:
        best, ends[begin] = total, end
      elif width > limit and (limit - width) ** 2 + _OVERFLOW_COST >= best:
        break  # Longer lines cost even more.
    cost[begin] = best or 0
  return ends


def _wrap(text: str, limit: int) -> list[str]:
  words = text.replace('\n', ' ').split(' ')
  widths = [display_width(word) for word in words]
  limit = max(limit, *widths)
  ends = _line_ends(widths, limit)
  lines, begin = [], 0
  while begin < len(words):
    lines.append(' '.join(words[begin : ends[begin]]))
    begin = ends[begin]
  return lines


def _cell_lines(text: str) -> tuple[list[str], int]:
  """Returns the lines of a cell and the width that the cell needs.

  The lines of a cell are joined to one paragraph. The paragraph is then broken
  at the width of its widest line, or at the limit if that is less.
  """
  limit = min(_MAX_WIDTH, max(map(display_width, text.split('\n'))))
  lines = _wrap(text, limit)
  return lines, max(limit, *map(display_width, lines))


def _align(line: str, width: int) -> str:
  padding = ' ' * (width - display_width(line))
  if _NUMBER.fullmatch(line.strip()):
    return padding + line
  return line + padding


def _center(line: str, width: int) -> str:
  missing = width - display_width(line)
  left = missing // 2
  return ' ' * left + line + ' ' * (missing - left)


def render(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
  """Draws a table.

  Args:
    header: The titles of the columns.
    rows: The cells; a row may have more or fewer cells than the header.

  Returns:
    The lines of the table, each with a newline at the end.
  """
  titles = [re.sub('[_.]', ' ', text).strip().upper() for text in header]
  cells = [[_cell_lines(text) for text in row] for row in rows]
  count = max([len(titles), *map(len, cells)])
  titles += [''] * (count - len(titles))
  widths = list(map(display_width, titles))
  lines: list[tuple[str, ...]] = []
  for row in cells:
    row += [([], 0)] * (count - len(row))
    widths = [max(width, cell[1]) for width, cell in zip(widths, row)]
    texts = (cell[0] for cell in row)
    lines += itertools.zip_longest(*texts, fillvalue='')
  rule = '+' + '+'.join('-' * (width + 2) for width in widths) + '+\n'

  def drawn(line: Iterable[str], align: Callable[[str, int], str]) -> str:
    return '| ' + ' | '.join(map(align, line, widths)) + ' |\n'

  body = [drawn(line, _align) for line in lines]
  return ''.join([rule, drawn(titles, _center), rule, *body, rule])
