"""Prints tables in plain text or, in a terminal, with borders."""

from collections.abc import Collection, Iterable, Sequence
import io
import sys
from typing import TextIO

from rich import box as rich_box
from rich import console as rich_console
from rich import table as rich_table
from rich import text as rich_text

_UNBOUNDED = 1_000_000  # This is wider than any terminal.


def render(
  rows: Iterable[Sequence[str]], left: Collection[int] = (0,), indent: str = ''
) -> str:
  """Returns aligned columns in plain text.

  Args:
    rows: The rows of cells, all of the same length.
    left: The indices of the columns that are aligned to the left.
    indent: The text at the beginning of each line.
  """
  rows = list(rows)
  table = rich_table.Table.grid(padding=(0, 2, 0, 0))
  for i in range(len(rows[0])):
    table.add_column(justify='left' if i in left else 'right')
  for row in rows:
    table.add_row(*map(rich_text.Text, row))
  text = io.StringIO()
  rich_console.Console(file=text, width=_UNBOUNDED).print(table)
  lines = text.getvalue().splitlines()
  return '\n'.join((indent + line).rstrip() for line in lines)


def show(
  rows: Sequence[Sequence[str]],
  left: Collection[int] = (0,),
  file: TextIO | None = None,
) -> None:
  """Prints a table, with borders if a terminal is wide enough for them.

  A table with borders that is wider than the terminal would split every cell.

  Args:
    rows: The rows of cells, all of the same length. The first row is the
      heading.
    left: The indices of the columns that are aligned to the left.
    file: The file to print to; by default, standard output.
  """
  file = file or sys.stdout
  console = rich_console.Console(file=file, highlight=False)
  table = rich_table.Table(box=rich_box.SIMPLE)
  for i, name in enumerate(rows[0]):
    table.add_column(name, justify='left' if i in left else 'right')
  for row in rows[1:]:
    table.add_row(*map(rich_text.Text, row))
  unbounded = console.options.update_width(_UNBOUNDED)
  width = console.measure(table, options=unbounded).maximum
  if console.is_terminal and width <= console.width:
    console.print(table)
  else:
    print(render(rows, left), file=file)
