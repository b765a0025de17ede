"""Tables in plain text."""

from collections.abc import Sequence


def render(rows: Sequence[Sequence[str]]) -> str:
  """Aligned columns, the first to the left and the others to the right.

  Args:
    rows: cells, in every row as many.
  """
  widths = [max(map(len, column)) for column in zip(*rows)]
  return '\n'.join(
    '  '.join(
      cell.ljust(width) if i == 0 else cell.rjust(width)
      for i, (cell, width) in enumerate(zip(row, widths))
    ).rstrip()
    for row in rows
  )
