"""Tables in plain text."""

from collections.abc import Collection, Sequence


def render(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> str:
  """Aligned columns, the first to the left and the others to the right.

  Args:
    rows: cells, in every row as many.
    left: columns that are aligned to the left, counted from 0.
  """
  widths = [max(map(len, column)) for column in zip(*rows)]
  return '\n'.join(
    '  '.join(
      cell.ljust(width) if i in left else cell.rjust(width)
      for i, (cell, width) in enumerate(zip(row, widths))
    ).rstrip()
    for row in rows
  )
