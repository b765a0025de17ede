"""Tables as the reader's side takes them: drawn on a terminal, else plain."""

from collections.abc import Sequence
import sys
from typing import TextIO

from rich import box
from rich import console as rich_console
from rich import table as rich_table
from rich import text as rich_text

from harness.results import text_table


def show(rows: Sequence[Sequence[str]], file: TextIO | None = None) -> None:
  """Prints a table.

  Args:
    rows: cells, in every row as many; the first row is the heading.
    file: where to; default: standard output.
  """
  file = file or sys.stdout
  console = rich_console.Console(file=file, highlight=False)
  if not console.is_terminal:
    print(text_table.render(rows), file=file)
    return
  table = rich_table.Table(box=box.SIMPLE)
  for name in rows[0]:
    table.add_column(name, overflow='fold')
  for row in rows[1:]:
    table.add_row(*(rich_text.Text(cell) for cell in row))
  console.print(table)
