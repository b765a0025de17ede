"""Finds the jobs that a user names, by directory or by id."""

import os

from harness.results import entry as entry_lib
from saxml_ext.common import user_path

# A shorter beginning of an id would name too many jobs.
_FEWEST_LETTERS = 4
# See harness/results/store.py.
_REPLACED = '.previous'


def job(name: str, results_dir: str) -> str:
  """The directory of a job.

  Args:
    name: a directory with a result.json, or an id or its beginning.
    results_dir: where jobs of that id are looked for, at any depth.

  Raises:
    FileNotFoundError: there is no such job.
    ValueError: several jobs have ids that begin so.
  """
  directory = user_path.resolve(name)
  if os.path.isfile(os.path.join(directory, entry_lib.FILE)):
    return directory
  if os.path.isdir(directory):
    raise FileNotFoundError(
      f'{directory} holds no {entry_lib.FILE}, so it is no result of a job; give'
      ' the directory that a job printed as its results'
    )
  found, unreadable = _with_id(name, results_dir)
  if not found:
    but = f' ({unreadable[0]})' if unreadable else ''
    raise FileNotFoundError(
      f'{name!r} is neither a directory nor the id of a result below'
      f' {results_dir}{but}; give a directory with a {entry_lib.FILE}, or the'
      ' right --results_dir'
    )
  if len(found) > 1:
    raise ValueError(
      f'{name!r} names {len(found)} results: {", ".join(sorted(found))}; give'
      ' more letters of the id, or the directory'
    )
  return found[0]


def _with_id(beginning: str, results_dir: str) -> tuple[list[str], list[str]]:
  """Directories whose ids begin so, and why others could not be read."""
  found: list[str] = []
  unreadable: list[str] = []
  if len(beginning) < _FEWEST_LETTERS:
    return found, unreadable
  for directory, names, files in os.walk(results_dir):
    if entry_lib.FILE not in files:
      # A result that a rerun is about to replace has the same id.
      names[:] = [each for each in names if not each.endswith(_REPLACED)]
      continue
    names.clear()  # What lies in a job's directory is the job's.
    try:
      if entry_lib.read(directory).id.startswith(beginning):
        found.append(directory)
    except ValueError as error:
      unreadable.append(str(error))
  return found, unreadable
