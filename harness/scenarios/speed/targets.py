"""Keeps the speeds that find_performance found, for later runs."""

import dataclasses
import json
import os

from harness.results import entry
from harness.scenarios import load as load_lib
from saxml_ext.common import files


@dataclasses.dataclass(frozen=True)
class Found:
  """A speed that a system was found to hold.

  Attributes:
    speed: what later runs use.
    when: when it was found, ISO 8601 in UTC.
  """

  speed: load_lib.Speed
  when: str


def find(path: str | None, key: str) -> Found | None:
  """What was kept under a key; None if nothing was.

  Raises:
    ValueError: the file is damaged.
  """
  record = _read(path).get(key) if path else None
  if record is None:
    return None
  return Found(load_lib.Speed(**record['speed']), record['when'])


def keep(path: str, key: str, speed: load_lib.Speed) -> None:
  """Keeps a speed under a key, in place of an earlier one.

  Raises:
    OSError, ValueError: the file cannot be written, or is damaged.
  """
  records = _read(path)
  records[key] = {'speed': dataclasses.asdict(speed), 'when': entry.now()}
  os.makedirs(os.path.dirname(path), exist_ok=True)
  with files.replacing(path) as file:
    json.dump(records, file, indent=2)


def _read(path: str) -> dict:
  try:
    with open(path, encoding='utf-8') as file:
      return json.load(file)
  except FileNotFoundError:
    return {}
  except ValueError as error:
    raise ValueError(
      f'{path}, which keeps targets that were found, is damaged ({error});'
      ' remove it and find them again'
    ) from error
