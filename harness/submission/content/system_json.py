"""systems/<system>.json: the description of the system that is submitted."""

from collections.abc import Mapping
import json
import re
from typing import Any

from harness.description import fields

# Whole numbers: the checker of v6 multiplies them.
_COUNTS = ('number_of_nodes', 'accelerators_per_node')


def system_id(name: str) -> str:
  """The name that directories have: letters, digits, dots, dashes, _."""
  return re.sub(r'[^A-Za-z0-9._-]+', '_', name).strip('._')


def merged(
  detected: Mapping[str, Any],
  given: Mapping[str, Any],
  fixed: Mapping[str, Any],
  notes: Mapping[str, str],
) -> dict[str, str]:
  """The description that is submitted: texts, as checkers call 0 empty.

  Args:
    detected: what the results say of their system.
    given: the user's, which replaces what was detected.
    fixed: what flags say, which replaces both.
    notes: text by key that is added to what is there: hw_notes, sw_notes.
  """
  may_be_empty = {k: '' for k, v in fields.REQUIRED.items() if not v.filled}
  known = may_be_empty | dict(detected) | dict(given) | dict(fixed)
  record = {key: str(known[key]) for key in known if known[key] is not None}
  for key, text in notes.items():
    if text:
      record[key] = '. '.join(filter(None, (record[key].strip(), text)))
  return record


def problems(record: Mapping[str, str]) -> list[str]:
  """What is wrong with a description; empty if nothing is."""
  found = []
  missing = fields.missing(record)
  if missing:
    found.append(
      f'the system description lacks {", ".join(missing)}: write them into a'
      ' JSON or YAML file and give it by --system_description ("N/A" is an'
      ' answer)'
    )
  try:
    fields.check(record)
  except ValueError as error:
    found.append(f'the system description: {error}')
  for key in _COUNTS:
    if key not in missing and not record[key].isdecimal():
      found.append(
        f'{key} of the system description is {record[key]!r}; it must be a whole'
        ' number'
      )
  return found


def text(record: Mapping[str, str]) -> str:
  """The file's text."""
  return json.dumps(dict(record), indent=2) + '\n'
