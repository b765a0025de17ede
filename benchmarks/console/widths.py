"""Shows the cost of an answer by the number of beams."""

from collections.abc import Sequence

from rich import table as table_lib

_MIB = 1 << 20


def by_engine(rows: Sequence[dict]) -> dict[str, list[dict]]:
  """Groups rows of beam search by engine, with ascending numbers of beams."""
  groups: dict[str, list[dict]] = {}
  for row in sorted(rows, key=lambda r: r['beams']):
    if row['beams'] > 1:
      groups.setdefault(f'{row["engine"]} {row["dtype"]}', []).append(row)
  return groups


def growth(rows: Sequence[dict]) -> list[float]:
  """Returns the cost of an answer at each width, relative to the narrowest.

  Args:
    rows: The rows of one engine, as `by_engine` returns them.
  """
  first = rows[0]['cpu_seconds_per_request']
  return [row['cpu_seconds_per_request'] / first for row in rows]


def table(rows: Sequence[dict]) -> table_lib.Table:
  """Returns the table of CPU times by width, absolute and relative."""
  groups = by_engine(rows)
  widths = sorted({row['beams'] for row in rows if row['beams'] > 1})
  result = table_lib.Table(
    title='Beam widths: CPU ms per answer (relative to the narrowest beam);'
    ' tokens/CPU s; peak MiB',
    title_justify='left',
  )
  result.add_column('engine')
  for width in widths:
    grown = f' (width x {width / widths[0]:g})' if width > widths[0] else ''
    result.add_column(f'{width} beams{grown}', justify='right')
  for name, of_engine in groups.items():
    cells = {}
    for row, factor in zip(of_engine, growth(of_engine)):
      cells[row['beams']] = (
        f'{1000 * row["cpu_seconds_per_request"]:.0f} (x {factor:.1f});'
        f' {row["tokens_per_cpu_second"]:.1f};'
        f' {row["peak_rss_bytes"] / _MIB:.0f}'
      )
    result.add_row(name, *[cells.get(width, '') for width in widths])
  return result
