"""Prints the results of the reliability tests, and runs these tests.

    ./bazelw run //tests:reliability_report
    ./bazelw run //tests:reliability_report -- --rows=5,8,9,10
    ./bazelw run //tests:reliability_report -- --rows=all --form=short

Without --rows, it shows the stored results. The exit code is 1 if a shown row
misses a figure.
"""

from collections.abc import Sequence
import dataclasses
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from absl import flags

from harness.caching import cache as cache_lib
from saxml_ext.common import program
from saxml_ext.common import user_path
from saxml_ext.common.pages import page_kit
from tests.reliability.results import figures
from tests.reliability.results import page
from tests.reliability.results import store
from tests.reliability.results import table

_PROGRAM = 'tests.reliability.run_row'
_FILE = 'reliability.json'
# The directory of the user with `bazel run`; otherwise, the repository's files
# are in the current directory.
_WORKSPACE = os.environ.get('BUILD_WORKSPACE_DIRECTORY', os.path.curdir)

_ROWS = flags.DEFINE_list(
  'rows',
  [],
  'The keys of the rows to run first, or "all". Default: none, so only stored'
  ' results are shown.',
)
_FORM = flags.DEFINE_enum(
  'form', 'full', ['full', 'short'], 'The form of the rows to run.'
)
_RESULTS = flags.DEFINE_string(
  'results',
  None,
  f"The JSON file of outcomes. Default: {_FILE} in the cache's results.",
)
_PAGE = flags.DEFINE_string(
  'page', None, 'The HTML file. Default: next to --results.'
)


def _chosen() -> list[table.Row]:
  if _ROWS.value == ['all']:
    return list(table.ROWS)
  return [table.find(key) for key in _ROWS.value]


def _results() -> pathlib.Path:
  path = user_path.resolve(_RESULTS.value)
  if path:
    return pathlib.Path(path)
  return pathlib.Path(cache_lib.get().create().results) / _FILE


def _run(row: table.Row, form: str) -> figures.Outcome:
  """Runs a row in a separate process, which may crash."""
  spec = importlib.util.find_spec(_PROGRAM)
  if spec is None or spec.origin is None:
    raise ValueError(f'there is no module {_PROGRAM}')
  with tempfile.TemporaryDirectory() as directory:
    output = pathlib.Path(directory) / 'outcome.json'
    command = [sys.executable, spec.origin, f'--row={row.key}']
    command += [f'--form={form}', f'--output={output}']
    env = {**os.environ, 'PYTHONPATH': os.pathsep.join(sys.path)}
    code = subprocess.run(command, env=env, check=False).returncode
    if not output.exists():
      error = f'the process ended with code {code} and without an outcome'
      return figures.Outcome(row.key, form, (), error)
    outcome = figures.from_json(json.loads(output.read_text()))
  return dataclasses.replace(outcome, commit=store.commit(_WORKSPACE))


def main(argv: Sequence[str]) -> int:
  """Runs the rows that the flags name, then shows all results."""
  del argv
  try:
    chosen, path = _chosen(), _results()
    store.read(path)  # A damaged file is reported before an hour is spent.
    for row in chosen:
      print(
        f'running row {row.key}, {_FORM.value} form'
        + (f', about {row.minutes:g} min' if _FORM.value == 'full' else ''),
        flush=True,
      )
      store.add(path, _run(row, _FORM.value))
    outcomes = page.choose(store.read(path))
    target = user_path.resolve(_PAGE.value) or str(path.with_suffix('.html'))
    page_kit.write(os.path.abspath(target), page.html(outcomes))
  except (OSError, ValueError) as e:
    raise SystemExit(f'reliability_report: {e}') from e
  print(page.text(outcomes))
  print(f'The page is {target}. The outcomes are in {path}.')
  return 0 if all(outcome.met for outcome in outcomes.values()) else 1


if __name__ == '__main__':
  program.run(main)
