"""Reads LoadGen's logs of a run, and keeps the times of its samples.

LoadGen logs no times of single samples. Reports need them, so the harness
writes them to a file of its own.
"""

from collections.abc import Iterable
import csv
import dataclasses
import datetime
import json
import os
import pathlib

import msgspec

ACCURACY_LOG = 'mlperf_log_accuracy.json'
DETAIL_LOG = 'mlperf_log_detail.txt'
SUMMARY_LOG = 'mlperf_log_summary.txt'
LOGS = (ACCURACY_LOG, DETAIL_LOG, SUMMARY_LOG, 'mlperf_log_trace.json')
TIMELINE = 'timeline.csv'

_PREFIX = ':::MLLOG '
_TIME_FORMAT = '%m-%d-%Y %H:%M:%S.%f'


@dataclasses.dataclass(frozen=True)
class RunLog:
  """The logs of one run.

  Attributes:
    directory: The directory of the logs.
    summary: The text of mlperf_log_summary.txt; empty for an accuracy run.
    values: The last value of each key in mlperf_log_detail.txt.
    problems: The texts of the entries that LoadGen marked as errors.
  """

  directory: str
  summary: str
  values: dict[str, object]
  problems: tuple[str, ...]

  @property
  def valid(self) -> bool:
    """True if LoadGen reports a valid performance run and logged no errors."""
    return self.values.get('result_validity') == 'VALID' and not self.problems

  @property
  def seconds(self) -> float:
    """The duration of the run, from the first issue to the last answer.

    Raises:
      ValueError: The log has no times, because it is not from a performance
        run.
    """
    begin, end = map(self._time, ('power_begin', 'power_end'))
    return (end - begin).total_seconds()

  def _time(self, key: str) -> datetime.datetime:
    text = self.values.get(key)
    if not isinstance(text, str):
      raise ValueError(
        f'{self.directory}/{DETAIL_LOG} has no {key}. Use the logs of a'
        ' performance run that ended'
      )
    return datetime.datetime.strptime(text, _TIME_FORMAT)


def clear(directory: str) -> None:
  """Creates the directory and removes the logs of an earlier run from it."""
  os.makedirs(directory, exist_ok=True)
  for name in LOGS:
    path = os.path.join(directory, name)
    if os.path.exists(path):
      os.remove(path)


def read(directory: str) -> RunLog:
  """Reads the logs of a finished run.

  Raises:
    ValueError: The logs are incomplete.
  """
  values: dict[str, object] = {}
  problems = []
  path = os.path.join(directory, DETAIL_LOG)
  with open(path, encoding='utf-8') as file:
    for number, line in enumerate(file, 1):
      if not line.startswith(_PREFIX):
        continue
      try:
        entry = json.loads(line[len(_PREFIX) :])
      except ValueError as error:
        raise ValueError(f'{path}:{number} was cut off: {error}') from error
      values[entry['key']] = entry['value']
      if entry['metadata']['is_error']:
        problems.append(f'{entry["key"]}: {entry["value"]}')
  summary = pathlib.Path(directory, SUMMARY_LOG).read_text('utf-8')
  return RunLog(directory, summary, values, tuple(problems))


# It is not frozen, because a frozen object takes three times as long to create.
@dataclasses.dataclass(slots=True)
class Times:
  """The times of one sample, in seconds since the first sample was issued.

  Attributes:
    index: The index of the sample in the set.
    issued: The time when LoadGen issued it.
    sent: The time when the system received it.
    first_token: The time of its first token; None if it is unknown.
    done: The time of its answer.
    tokens: The number of generated tokens; 0 if the model generates none.
  """

  index: int
  issued: float
  sent: float
  first_token: float | None
  done: float
  tokens: int


def write_timeline(path: str, samples: Iterable[Times]) -> None:
  """Writes a CSV file with a header and a row for each sample.

  Raises:
    OSError: The file cannot be written.
  """
  names = [field.name for field in dataclasses.fields(Times)]
  os.makedirs(os.path.dirname(path), exist_ok=True)
  with open(path, 'w', encoding='utf-8', newline='') as file:
    writer = csv.writer(file)
    writer.writerow(names)
    writer.writerows(
      [_cell(getattr(sample, name)) for name in names] for sample in samples
    )


def read_timeline(path: str) -> list[Times]:
  """Reads a file that `write_timeline` wrote.

  Raises:
    OSError: The file cannot be read.
    ValueError: The file is not a timeline.
  """
  with open(path, encoding='utf-8', newline='') as file:
    try:
      # Fields of None are empty.
      rows = [
        {name: value or None for name, value in row.items()}
        for row in csv.DictReader(file)
      ]
      return msgspec.convert(rows, list[Times], strict=False)
    except ValueError as error:
      raise ValueError(
        f'{path} is no timeline of a run ({error!r}). Use the {TIMELINE} that'
        ' a run of the harness wrote'
      ) from error


def _cell(value: float | int | None) -> str:
  if value is None:
    return ''
  return f'{value:.6f}' if isinstance(value, float) else str(value)
