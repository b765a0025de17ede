"""Stores the latest outcome of each row and form in one JSON file."""

import json
import pathlib
import subprocess

from saxml_ext.common import files
from tests.reliability.results import figures

_VERSION = 1


def read(path: pathlib.Path) -> list[figures.Outcome]:
  """Returns the outcomes in a file, or none if there is no file.

  Raises:
    ValueError: The file was not written by `add`.
  """
  try:
    value = json.loads(path.read_text(encoding='utf-8'))
    if value['version'] != _VERSION:
      raise ValueError(f'its version is {value["version"]}')
    return [figures.from_json(stored) for stored in value['outcomes']]
  except FileNotFoundError:
    return []
  except (KeyError, TypeError, ValueError) as e:
    raise ValueError(
      f'{path} has no results of reliability tests ({e}). Remove it, or choose'
      ' another --results.'
    ) from e


def add(path: pathlib.Path, outcome: figures.Outcome) -> None:
  """Stores an outcome; replaces an older one of the same row and form.

  Raises:
    ValueError: The file is damaged, see `read`.
    OSError: The file cannot be written.
  """
  kept = [
    stored
    for stored in read(path)
    if (stored.row, stored.form) != (outcome.row, outcome.form)
  ]
  value = {
    'version': _VERSION,
    'outcomes': [stored.to_json() for stored in [*kept, outcome]],
  }
  path.parent.mkdir(parents=True, exist_ok=True)
  files.write_json(path, value, indent=1)


def commit(directory: str) -> str:
  """Returns the commit of a checkout, "+" for changed files; '' if unknown."""
  try:
    head = _git(directory, 'rev-parse', '--short=12', 'HEAD')
    changed = _git(directory, 'status', '--porcelain', '--untracked-files=no')
  except (FileNotFoundError, subprocess.CalledProcessError):
    return ''
  return head + ('+' if changed else '')


def _git(directory: str, *words: str) -> str:
  return subprocess.run(
    ['git', '-C', directory, *words],
    check=True,
    capture_output=True,
    text=True,
  ).stdout.strip()
