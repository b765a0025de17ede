"""Reads LoadGen's logs of a run."""

import dataclasses
import datetime
import json
import os

ACCURACY_LOG = 'mlperf_log_accuracy.json'
DETAIL_LOG = 'mlperf_log_detail.txt'
SUMMARY_LOG = 'mlperf_log_summary.txt'
LOGS = (ACCURACY_LOG, DETAIL_LOG, SUMMARY_LOG, 'mlperf_log_trace.json')

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
        f'{self.directory}/{DETAIL_LOG} has no {key}; it must come from a'
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
  with open(os.path.join(directory, SUMMARY_LOG), encoding='utf-8') as file:
    summary = file.read()
  return RunLog(directory, summary, values, tuple(problems))
