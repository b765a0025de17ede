"""Runs one row of the table in its own process, and stores the outcome.

run_row --row=5 --form=full --output=/tmp/outcome.json
"""

from collections.abc import Sequence
import datetime
import json
import pathlib
import sys
import tempfile
import time
import traceback

from absl import flags
from absl import logging

from saxml_ext.common import program
from tests.hosts import namespaces
from tests.reliability import rows
from tests.reliability.results import figures
from tests.reliability.results import meters
from tests.reliability.results import table

_ROW = flags.DEFINE_string('row', None, 'Its key.')
_FORM = flags.DEFINE_enum('form', 'full', ['full', 'short'], 'Its form.')
_OUTPUT = flags.DEFINE_string('output', None, 'The JSON file to write.')


def run(key: str, form: str) -> figures.Outcome:
  """Runs a row; returns an outcome even if the test fails."""
  date = datetime.datetime.now(datetime.UTC)
  begin = time.monotonic()
  results: Sequence[figures.Figure] = ()
  error = ''
  with tempfile.TemporaryDirectory(prefix='reliability_') as directory:
    with meters.Load() as load:
      try:
        results = (rows.FULL if form == 'full' else rows.SHORT)[key](directory)
      except Exception as e:  # pylint: disable=broad-exception-caught
        # A test that does not finish is also a result.
        traceback.print_exc()
        error = f'{type(e).__name__}: {e}'
  return figures.Outcome(
    row=key,
    form=form,
    figures=tuple(results),
    error=error,
    date=date.isoformat(timespec='seconds'),
    seconds=time.monotonic() - begin,
    machine=load.describe(),
  )


def main(argv: Sequence[str]) -> int:
  """Runs the row that the flags name."""
  del argv
  logging.set_verbosity(logging.FATAL)
  outcome = run(table.find(_ROW.value).key, _FORM.value)
  pathlib.Path(_OUTPUT.value).write_text(json.dumps(outcome.to_json()))
  return 0


if __name__ == '__main__':
  if any(f'--row={row.key}' in sys.argv for row in table.ROWS if row.mounts):
    from tests.chaos import starved

    rows.obstacle = namespaces.enter(starved.NAMESPACES, starved.PROBE)
  program.run(main)
