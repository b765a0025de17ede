"""Formats the results of a run as tables."""

from collections.abc import Mapping, Sequence

from rich import console as console_lib
from rich import table as table_lib

from benchmarks import agreement
from benchmarks import floor as floor_lib

_MIB = 1 << 20


def speed(rows: Sequence[dict], title: str) -> table_lib.Table:
  """Returns the table of the speed of each contender."""
  ours = next((r['ours'] for r in rows if 'ours' in r), 'ours')
  table = _table(
    title,
    'tokens/CPU s',
    'quartiles',
    f'{ours} is',
    'CPU s',
    'wall s',
    'CPU ms/request',
  )
  for row, first in zip(rows, _begins(rows)):
    if first:
      table.add_section()
    low, high = row['tokens_per_cpu_second_quartiles']
    times = row.get('ours_over_this')
    table.add_row(
      *_names(row),
      f'{row["tokens_per_cpu_second"]:.1f}',
      f'{low:.1f}-{high:.1f}',
      '' if times is None else f'{times:.2f} x',
      f'{row["cpu_seconds"]:.2f}',
      f'{row["wall_seconds"]:.2f}',
      f'{1000 * row["cpu_seconds_per_request"]:.1f}',
    )
  return table


def costs(rows: Sequence[dict]) -> table_lib.Table:
  """Returns the table of memory and of the startup time of each contender."""
  table = _table(
    'Memory and startup time in wall seconds',
    'peak MiB',
    'load s',
    'compile s',
    'KV',
    'settings',
  )
  for row, first in zip(rows, _begins(rows)):
    if first:
      table.add_section()
    table.add_row(
      *_names(row),
      f'{row["peak_rss_bytes"] / _MIB:.0f}',
      f'{row["load_seconds"]:.1f}',
      f'{row["compile_seconds"]:.1f}',
      row['kv'],
      row['note'],
    )
  return table


def floors(
  bounds: Mapping[tuple[str, str, int], floor_lib.Floor],
  rows: Sequence[dict],
  rates: Mapping[tuple[str, str, int], floor_lib.Rates],
) -> table_lib.Table:
  """Returns the table of the time of each contender and its lower bound.

  Args:
    bounds: The lower bounds by (mode, contender, requests).
    rows: The rows of the whole run.
    rates: The measured rates, by the same keys.
  """
  table = _table(
    "Floor: minimum CPU seconds at the peak rates of this processor's core",
    'read GB/s',
    'Gop/s: products',
    'attention',
    'prefill s',
    'decode s: read',
    'or compute',
    'floor s',
    'took',
    'MB/step',
  )
  for row in rows:
    name = f'{row["engine"]}_{row["dtype"]}'
    key = row['mode'], name, row['requests']
    floor = bounds.get(key)
    if floor is None:
      continue
    r = rates[key]
    table.add_row(
      *_names(row),
      f'{r.read / 1e9:.1f}',
      f'{r.products / 1e9:.0f}',
      f'{r.attention / 1e9:.0f}',
      f'{floor.prefill_seconds:.3f}',
      f'{floor.read_seconds:.3f}',
      f'{floor.compute_seconds:.3f}',
      f'{floor.seconds:.3f}',
      f'{row["times_floor"]:.2f} x',
      f'{floor.step_bytes / 1e6:.0f}',
    )
  return table


def print_agreement(
  console: console_lib.Console, both: agreement.Agreement
) -> None:
  """Prints one line for each comparison."""
  for t in both.tokens:
    console.print(
      f'{both.mode}: {t.equal} of {t.total} answers of {t.name} equal those of'
      f' {both.reference}. {100 * t.shared:.1f} % of the tokens precede the'
      ' first difference.'
    )
  for n in both.n_best:
    console.print(
      f'{both.mode}: of the {n.total} best answers of {both.reference},'
      f' {n.name} has {n.equal} at the same rank and {n.in_list} at any rank.'
      f' The largest difference of scores is {n.score_gap:.1e}.'
    )
  for figure in both.top1:
    console.print(
      f'{both.mode}: {figure.engine} int8 and {figure.reference} have the same'
      f' most likely token at {100 * figure.agreement:.2f} % of'
      f' {figure.positions} positions (teacher-forced).'
    )


def _table(title: str, *columns: str) -> table_lib.Table:
  """Returns a table that begins with the columns of _names()."""
  table = table_lib.Table(title=title, title_justify='left')
  table.add_column('mode')
  table.add_column('engine')
  for name in ('requests', *columns):
    table.add_column(name, justify='right')
  return table


def _names(row: dict) -> tuple[str, str, str]:
  return row['mode'], f'{row["engine"]} {row["dtype"]}', str(row['requests'])


def _begins(rows: Sequence[dict]) -> list[bool]:
  """Returns a list that is True for each row with a new mode."""
  modes = [r['mode'] for r in rows]
  return [i > 0 and modes[i - 1] != m for i, m in enumerate(modes)]
