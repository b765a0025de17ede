"""Creates tables of results in MLCommons' formats, for tests.

The names and the order of the columns are those of submission_checker.py and
generate_final_report.py. The figures and systems are fictional.
"""

import csv
import json
from typing import Any

_HEADING = (
  'Organization,Availability,Division,SystemType,SystemName,Platform,Model,'
  'MlperfModel,Scenario,Result,Accuracy,number_of_nodes,'
  'host_processor_model_name,host_processors_per_node,'
  'host_processor_core_count,accelerator_model_name,accelerators_per_node,'
  'Location,framework,operating_system,notes,compliance,errors,version,'
  'inferred,has_power,Units,weight_data_types'
).split(',')


def csv_row(**changes: Any) -> dict[str, Any]:
  """Returns a row of summary.csv."""
  values = (
    'Acme,available,closed,datacenter,"Rack, large",rack8,gptj-99,gptj-99,'
    'Offline,6900.0,ROUGE1: 43.1  ROUGE2: 20.2  ROUGEL: 30.1  GEN_LEN:'
    ' 4012345,1,Some CPU,2,64,Some GPU,8,'
    'closed/Acme/results/rack8/gptj-99/Offline,Framework 1,Some Linux,,1,0,'
    'v4.1,0,False,Tokens/s,fp8'
  )
  return dict(zip(_HEADING, next(csv.reader([values])), strict=True)) | changes


def write_csv(path: str, rows: list[dict[str, Any]]) -> str:
  with open(path, 'w', encoding='utf-8', newline='') as file:
    writer = csv.DictWriter(file, _HEADING)
    writer.writeheader()
    writer.writerows(rows)
  return path


def json_row(**changes: Any) -> dict[str, Any]:
  """Returns a record of summary_results.json."""
  return {
    'ID': 'v4.1-0001',
    'Submitter': 'Acme',
    'Availability': 'available',
    'Category': 'closed',
    'Suite': 'datacenter,edge',
    'System': 'Rack, large',
    'Platform': 'rack8',
    'UsedModel': 'bert-99',
    'Model': 'bert-99',
    'Scenario': 'Server',
    'Accuracy': 'F1: 90.35676151551918',
    'Nodes': 1,
    'Processor': 'Some CPU',
    'host_processors_per_node': 1,
    'host_processor_core_count': 96.0,
    'Accelerator': 'Some GPU',
    'a#': 4.0,
    'Location': 'closed/Acme/results/rack8/bert-99/Server',
    'Software': 'Framework 1',
    'operating_system': 'Some Linux',
    'Notes': '',
    'compliance': 1,
    'errors': 0,
    'version': 'v4.1',
    'inferred': 0,
    'has_power': False,
    'weight_data_types': 'int8',
    'p#': 1,
    'Performance_Result': 20000.0,
    'Performance_Units': 'Queries/s',
  } | changes


def write_json(path: str, rows: list[Any]) -> str:
  with open(path, 'w', encoding='utf-8') as file:
    json.dump(rows, file)
  return path
