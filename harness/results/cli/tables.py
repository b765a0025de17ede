"""Tables as the reader's side takes them: drawn on a terminal, else plain."""

from collections.abc import Collection, Sequence
import sys
from typing import TextIO

from rich import box
from rich import console as rich_console
from rich import table as rich_table
from rich import text as rich_text

from harness.results import text_table

_UNBOUNDED = 1_000_000  # Wider than any terminal.


def show(
  rows: Sequence[Sequence[str]],
  left: Collection[int] = (0,),
  file: TextIO | None = None,
) -> None:
  """Prints a table.

  A drawn table that is wider than the terminal would break every cell into
  pieces, so that one is plain too.

  Args:
    rows: cells, in every row as many; the first row is the heading.
    left: columns that are aligned to the left, counted from 0.
    file: where to; default: standard output.
  """
  file = file or sys.stdout
  console = rich_console.Console(file=file, highlight=False)
  table = _drawn(rows, left)
  unbounded = console.options.update_width(_UNBOUNDED)
  width = console.measure(table, options=unbounded).maximum
  if console.is_terminal and width <= console.width:
    console.print(table)
  else:
    print(text_table.render(rows, left), file=file)


def _drawn(
  rows: Sequence[Sequence[str]], left: Collection[int]
) -> rich_table.Table:
  table = rich_table.Table(box=box.SIMPLE)
  for i, name in enumerate(rows[0]):
    table.add_column(name, justify='left' if i in left else 'right')
  for row in rows[1:]:
    table.add_row(*(rich_text.Text(cell) for cell in row))
  return table
