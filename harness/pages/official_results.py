"""Reads published results.

Two forms are known, both of which mlcommons/inference's own tools write:
summary.csv of submission_checker.py, and summary_results.json of
generate_final_report.py, which lies at the top of every inference_results_v*
repository since v4.1. The columns of both are told in `_CSV_NAMES`.
"""

from collections.abc import Iterable, Mapping
import csv
import dataclasses
import json
import os
from typing import Any

from harness.pages import compare_page
from harness.rules import rounds

# Columns of summary.csv by their names in summary_results.json. `Model` means
# another thing in each: what was run in the one, the benchmark in the other.
_CSV_NAMES = {
  'Submitter': 'Organization',
  'Category': 'Division',
  'Suite': 'SystemType',
  'System': 'SystemName',
  'Model': 'MlperfModel',
  'UsedModel': 'Model',
  'Nodes': 'number_of_nodes',
  'Processor': 'host_processor_model_name',
  'Accelerator': 'accelerator_model_name',
  'a#': 'accelerators_per_node',
  'Software': 'framework',
  'Notes': 'notes',
  'Performance_Result': 'Result',
  'Performance_Units': 'Units',
}
_NEEDED = ('Organization', 'Division', 'SystemName', 'Scenario')
_WATTS = 'Watts'
_MILLIJOULES = 'millijoules'
_SCENARIOS = {name.lower(): name for name in (*rounds.SCENARIOS, 'Interactive')}

Row = Mapping[str, Any]


def read(path: str) -> list[compare_page.Record]:
  """Reads a file of published results.

  Raises:
    OSError: it cannot be read.
    ValueError: it is of no known form.
  """
  with open(path, encoding='utf-8-sig', newline='') as file:
    text = file.read()
  try:
    rows = _json(text) if text.lstrip().startswith('[') else _csv(text)
    return _records(os.path.basename(path), rows)
  except ValueError as error:
    raise ValueError(
      f'{path} is no table of published results: {error}; give'
      ' summary_results.json of an inference_results repository, or summary.csv'
      ' of submission_checker.py'
    ) from error


def read_all(paths: Iterable[str]) -> list[compare_page.Record]:
  """Reads several files; what stands in more than one of them counts once.

  Raises:
    OSError, ValueError: see `read`.
  """
  found: dict[compare_page.Record, compare_page.Record] = {}
  for path in paths:
    for each in read(path):
      found.setdefault(dataclasses.replace(each, origin=''), each)
  return list(found.values())


def _csv(text: str) -> list[Row]:
  reader = csv.DictReader(text.splitlines())
  rows: list[Row] = []
  for row in reader:
    if None in row or None in row.values():
      raise ValueError(
        f'line {reader.line_num} has not as many columns as the heading'
      )
    rows.append(row)
  return rows


def _json(text: str) -> list[Row]:
  rows = json.loads(text)
  for row in rows:
    if not isinstance(row, dict):
      raise ValueError(f'{row!r:.40} is no record')
  # Records with the names of the CSV file are taken as they are.
  return [
    row
    if 'Organization' in row
    else {_CSV_NAMES.get(key, key): value for key, value in row.items()}
    for row in rows
  ]


def _records(origin: str, rows: Iterable[Row]) -> list[compare_page.Record]:
  """Joins the rows of performance and of power that belong together."""
  performance: dict[tuple, Row] = {}
  power: dict[tuple, tuple[float, str]] = {}
  for number, row in enumerate(rows, 1):
    missing = [name for name in _NEEDED if not row.get(name)]
    if missing:
      raise ValueError(f'record {number} has no {missing[0]}')
    key = tuple(str(row.get(name, '')) for name in _KEY)
    units = str(row.get('Units') or '')
    if units.startswith((_WATTS, _MILLIJOULES)):
      power[key] = (_number(row, 'Result', number), units)
      continue
    if row.get('Power_Result'):
      power[key] = (
        _number(row, 'Power_Result', number),
        str(row.get('Power_Units') or ''),
      )
    _number(row, 'Result', number)
    performance[key] = row
  if not performance:
    raise ValueError('it holds no result')
  return [
    _record(origin, row, power.get(key)) for key, row in performance.items()
  ]


_KEY = (
  'Organization',
  'Division',
  'SystemType',
  'SystemName',
  'Platform',
  'Model',
  'MlperfModel',
  'Scenario',
  'version',
  'Location',
)


def _number(row: Row, name: str, number: int) -> float:
  try:
    value = float(row[name])
  except (KeyError, TypeError, ValueError):
    value = float('nan')
  if not 0 <= value < float('inf'):
    raise ValueError(
      f'record {number} has {name} {row.get(name)!r}, which is no figure'
    )
  return value


def _record(
  origin: str, row: Row, power: tuple[float, str] | None
) -> compare_page.Record:
  model = str(row.get('MlperfModel') or row.get('Model') or '')
  used = str(row.get('Model') or '')
  scenario = str(row['Scenario'])
  scenario = _SCENARIOS.get(scenario.lower(), scenario)
  result, unit = float(row['Result']), str(row.get('Units') or '')
  published = ''
  if _counts_tokens(model, scenario, unit, str(row.get('version') or '')):
    published = f'{result:g} {compare_page.TOKENS}'
    result /= compare_page.INFERRED_TOKENS
    unit = (
      compare_page.QUERIES
      if scenario == rounds.SERVER
      else compare_page.SAMPLES
    )
  count = _total(row)
  score, accuracy = _accuracy(row.get('Accuracy'))
  streams = unit == compare_page.LATENCY
  return compare_page.Record(
    ours=False,
    origin=origin,
    submitter=str(row['Organization']),
    system=str(row['SystemName']).strip(),
    platform=str(row.get('Platform') or ''),
    division=str(row['Division']),
    round=str(row.get('version') or ''),
    model=model,
    scenario=scenario,
    result=result,
    unit=unit,
    published=published,
    accelerators=compare_page.accelerators(
      count, str(row.get('accelerator_model_name') or '')
    ),
    accelerator_count=count,
    score=score,
    accuracy=accuracy,
    latency_ms=result if streams else None,
    joules_per_sample=_joules(power, scenario, result, unit),
    remark='' if used in ('', model) else f'model {used}',
  )


def _counts_tokens(model: str, scenario: str, unit: str, version: str) -> bool:
  """Whether a result of GPT-J is in inferred tokens/s.

  The round decides beside the unit: the checker of v4.1 writes "Samples/s"
  where it means tokens.
  """
  if not model.startswith('gptj'):
    return False
  if scenario not in (rounds.OFFLINE, rounds.SERVER):
    return False
  return unit == compare_page.TOKENS or version not in ('', 'v3.1', 'v4.0')


def _total(row: Row) -> int | None:
  """Accelerators of all nodes."""
  try:
    each = int(float(row.get('accelerators_per_node') or 0))
    return each * int(float(row.get('number_of_nodes') or 1)) or None
  except (TypeError, ValueError):
    return None  # Descriptions of open submissions hold words here.


def _accuracy(value: object) -> tuple[float | None, str]:
  """The first figure of "ROUGE1: 44.5  ROUGE2: 22.1", and the text."""
  text = ', '.join(str(value or '').replace('  ', '\n').splitlines())
  for word in text.replace(',', ' ').split():
    try:
      return float(word), text
    except ValueError:
      continue  # The name of the metric.
  return None, text


def _joules(
  power: tuple[float, str] | None, scenario: str, result: float, unit: str
) -> float | None:
  """Energy of a sample, where the rate or the stream tells it."""
  if power is None:
    return None
  value, units = power
  if units.startswith(_WATTS) and unit in (
    compare_page.SAMPLES,
    compare_page.QUERIES,
  ):
    return value / result if result else None
  if units == _MILLIJOULES and scenario == rounds.SINGLE_STREAM:
    return value / 1000
  return None
