"""Reads published results.

Two formats are supported. The tools of mlcommons/inference write both:

- summary.csv of submission_checker.py
- summary_results.json of generate_final_report.py. Since v4.1, this file is in
  the top folder of every inference_results_v* repository.

`_CSV_NAMES` maps the columns of one format to the other.
"""

from collections.abc import Iterable, Mapping
import csv
import dataclasses
import json
import os
from typing import Any

from harness.benchmarks import all as benchmarks
from harness.pages import compare_page
from harness.rules import rounds

# Column names of summary.csv, by their names in summary_results.json. `Model`
# differs: in summary.csv it is the model that was run, in summary_results.json
# it is the benchmark.
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

# Rows with the same values in these columns belong to one run.
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

Row = Mapping[str, Any]


def read(path: str) -> list[compare_page.Record]:
  """Reads a file of published results.

  Raises:
    OSError: The file cannot be read.
    ValueError: The file has an unknown format.
  """
  with open(path, encoding='utf-8-sig', newline='') as file:
    text = file.read()
  try:
    rows = _json(text) if text.lstrip().startswith('[') else _csv(text)
    return _records(os.path.basename(path), rows)
  except ValueError as error:
    raise ValueError(
      f'{path} is not a table of published results: {error}. Pass'
      ' summary_results.json of an inference_results repository, or'
      ' summary.csv of submission_checker.py.'
    ) from error


def read_all(paths: Iterable[str]) -> list[compare_page.Record]:
  """Reads several files and removes duplicate results.

  Raises:
    OSError: A file cannot be read.
    ValueError: A file has an unknown format.
  """
  records: dict[compare_page.Record, compare_page.Record] = {}
  for path in paths:
    for record in read(path):
      records.setdefault(dataclasses.replace(record, origin=''), record)
  return list(records.values())


def _csv(text: str) -> list[Row]:
  reader = csv.DictReader(text.splitlines())
  rows: list[Row] = []
  for row in reader:
    if None in row or None in row.values():
      raise ValueError(
        f'line {reader.line_num} has another number of columns than the heading'
      )
    rows.append(row)
  return rows


def _json(text: str) -> list[Row]:
  rows = json.loads(text)
  for row in rows:
    if not isinstance(row, dict):
      raise ValueError(f'{row!r:.40} is not a record')
  # Records that already use the names of the CSV file stay unchanged.
  return [
    row
    if 'Organization' in row
    else {_CSV_NAMES.get(key, key): value for key, value in row.items()}
    for row in rows
  ]


def _records(origin: str, rows: Iterable[Row]) -> list[compare_page.Record]:
  """Joins the performance and power rows of each run."""
  performance: dict[tuple, Row] = {}
  power: dict[tuple, tuple[float, str]] = {}
  for number, row in enumerate(rows, 1):
    for name in _NEEDED:
      if not row.get(name):
        raise ValueError(f'record {number} has no {name}')
    key = tuple(_text(row, name) for name in _KEY)
    result, units = _number(row, 'Result', number), _text(row, 'Units')
    if units.startswith((_WATTS, _MILLIJOULES)):
      power[key] = result, units
      continue
    if row.get('Power_Result'):
      watts = _number(row, 'Power_Result', number)
      power[key] = watts, _text(row, 'Power_Units')
    performance[key] = row
  if not performance:
    raise ValueError('it has no results')
  return [
    _record(origin, row, *power.get(key, (None, '')))
    for key, row in performance.items()
  ]


def _text(row: Row, name: str) -> str:
  return str(row.get(name) or '').strip()


def _number(row: Row, name: str, number: int) -> float:
  try:
    value = float(row[name])
  except (KeyError, TypeError, ValueError):
    value = float('nan')
  if not 0 <= value < float('inf'):
    raise ValueError(
      f'record {number} has {name} {row.get(name)!r}, which is not a valid'
      ' figure'
    )
  return value


def _record(
  origin: str, row: Row, power: float | None, power_units: str
) -> compare_page.Record:
  used = _text(row, 'Model')
  model = _text(row, 'MlperfModel') or used
  scenario = _text(row, 'Scenario')
  scenario = _SCENARIOS.get(scenario.lower(), scenario)
  result, unit = float(row['Result']), _text(row, 'Units')
  published = ''
  if _counts_tokens(model, scenario, unit, _text(row, 'version')):
    published = f'{result:g} {compare_page.TOKENS}'
    result /= compare_page.INFERRED_TOKENS
    unit = compare_page.RATES[scenario]
  joules = None
  if power is None:
    pass
  elif power_units.startswith(_WATTS) and unit in compare_page.RATES.values():
    joules = power / result if result else None
  elif power_units == _MILLIJOULES and scenario == rounds.SINGLE_STREAM:
    joules = power / 1000
  count = _accelerators(row)
  score, accuracy = _accuracy(row.get('Accuracy'))
  return compare_page.Record(
    ours=False,
    origin=origin,
    submitter=_text(row, 'Organization'),
    system=_text(row, 'SystemName'),
    platform=_text(row, 'Platform'),
    division=_text(row, 'Division'),
    round=_text(row, 'version'),
    model=model,
    scenario=scenario,
    result=result,
    unit=unit,
    published=published,
    accelerators=compare_page.accelerators(
      count, _text(row, 'accelerator_model_name')
    ),
    accelerator_count=count,
    score=score,
    accuracy=accuracy,
    latency_ms=result if unit == compare_page.LATENCY else None,
    joules_per_sample=joules,
    remark='' if used in ('', model) else f'model {used}',
  )


def _counts_tokens(model: str, scenario: str, unit: str, version: str) -> bool:
  """Returns True if a result of a benchmark is in inferred tokens/s.

  The unit alone is not enough, so the round is checked too. The checker of v4.1
  writes "Samples/s" for tokens/s.
  """
  benchmark = benchmarks.MODELS.get(model)
  since = benchmark.tokens_since if benchmark else ''
  if not since or scenario not in compare_page.RATES:
    return False
  return unit == compare_page.TOKENS or version not in (
    '',
    *list(rounds.ROUNDS)[: rounds.index(since)],
  )


def _accelerators(row: Row) -> int | None:
  """Returns the number of accelerators of all nodes, or None if unknown."""
  try:
    per_node = int(float(row.get('accelerators_per_node') or 0))
    return per_node * int(float(row.get('number_of_nodes') or 1)) or None
  except (TypeError, ValueError):
    return None  # Some open submissions have words here.


def _accuracy(value: object) -> tuple[float | None, str]:
  """Returns the first number of "ROUGE1: 44.5  ROUGE2: 22.1", and the text."""
  text = ', '.join(str(value or '').replace('  ', '\n').splitlines())
  for word in text.replace(',', ' ').split():
    try:
      return float(word), text
    except ValueError:
      continue  # This word is the name of the metric.
  return None, text
