"""Compares a PAX checkpoint with the Hugging Face checkpoint it came from.

  verify_ckpt --base=HF_DIR --pax=OUT_DIR

Prints one line for each variable: name, shape, type and the largest absolute
difference from what conversion of HF_DIR to that type gives. Exits with 0 if
all are equal, with 1 if any differs, is missing or is too many.
"""

from collections.abc import Sequence
import sys

from absl import app
from absl import flags
from rich import box
from rich import console as rich_console
from rich import table as rich_table

from converters import comparison
from saxml_ext.common import user_path
from saxml_ext.pax import errors

_BASE = flags.DEFINE_string(
    'base', None, 'Directory of the Hugging Face checkpoint.'
)
_PAX = flags.DEFINE_string('pax', None, 'Directory of the PAX checkpoint.')

_PLAIN_WIDTH = 160


def _print_table(rows: Sequence[comparison.Comparison]) -> None:
  table = rich_table.Table(box=box.SIMPLE)
  for title in ('variable', 'type and shape', 'max abs difference', ''):
    table.add_column(title, overflow='fold')
  for row in rows:
    difference = '-'
    if row.max_difference is not None:
      difference = f'{row.max_difference:g}'
    table.add_row(row.name, row.found, difference, row.problem)
  # Square brackets are shapes here, not rich's markup; files get all columns.
  width = None if sys.stdout.isatty() else _PLAIN_WIDTH
  rich_console.Console(markup=False, highlight=False, width=width).print(table)


def main(argv: Sequence[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'unexpected arguments: {" ".join(argv[1:])}')
  base, pax = map(user_path.resolve, (_BASE.value, _PAX.value))
  try:
    rows = list(comparison.compare(base, pax))
  except errors.CheckpointError as e:
    print(f'verify_ckpt: {e}', file=sys.stderr)
    sys.exit(1)
  _print_table(rows)
  bad = sum(bool(row.problem) for row in rows)
  if bad:
    print(f'{bad} of {len(rows)} variables are not as in {base}.')
    sys.exit(1)
  print(f'All {len(rows)} variables are as in {base}.')


if __name__ == '__main__':
  flags.mark_flags_as_required(['base', 'pax'])
  app.run(main)
