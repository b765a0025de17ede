"""The system description that a submission holds: systems/<system>.json."""

from collections.abc import Mapping
import json
import pathlib
import re
from typing import Any

# What must not be empty; "N/A" is an answer.
MEANINGFUL = (
  'division',
  'submitter',
  'status',
  'system_name',
  'system_type',
  'number_of_nodes',
  'host_processor_model_name',
  'host_processors_per_node',
  'host_processor_core_count',
  'host_memory_capacity',
  'host_memory_configuration',
  'host_storage_capacity',
  'host_storage_type',
  'host_networking',
  'host_network_card_count',
  'host_networking_topology',
  'accelerators_per_node',
  'accelerator_model_name',
  'accelerator_memory_capacity',
  'accelerator_host_interconnect',
  'accelerator_memory_configuration',
  'accelerator_interconnect',
  'cooling',
  'framework',
  'operating_system',
  'other_software_stack',
)

# What must be there, and may be empty.
OPTIONAL = (
  'accelerator_frequency',
  'accelerator_interconnect_topology',
  'accelerator_on-chip_memories',
  'host_processor_caches',
  'host_processor_frequency',
  'host_processor_interconnect',
  'hw_notes',
  'sw_notes',
  'system_type_detail',
)

# What a system that is reached over a network says besides.
NETWORK = (
  'is_network',
  'network_type',
  'network_media',
  'network_rate',
  'nic_loadgen',
  'number_nic_loadgen',
  'net_software_stack_loadgen',
  'network_protocol',
  'number_connections',
  'nic_sut',
  'number_nic_sut',
  'net_software_stack_sut',
  'network_topology',
)

# Whole numbers: the checker of v6 multiplies them.
COUNTS = ('number_of_nodes', 'accelerators_per_node')

STATUSES = ('available', 'preview', 'rdi')


def system_id(name: str) -> str:
  """The name that directories have: letters, digits, dots, dashes, _."""
  return re.sub(r'[^A-Za-z0-9._-]+', '_', name).strip('._')


def read(path: str | pathlib.Path) -> dict[str, Any]:
  """Reads a description that the user wrote.

  Raises:
    OSError: it cannot be read.
    ValueError: it is no JSON object.
  """
  with open(path, encoding='utf-8') as file:
    try:
      record = json.load(file)
    except ValueError as error:
      raise ValueError(f'{path} is no JSON: {error}') from error
  if not isinstance(record, dict):
    raise ValueError(f'{path} holds no JSON object')
  return record


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
  known = {key: '' for key in OPTIONAL} | dict(detected) | dict(given)
  record = {
    key: str(value)
    for key, value in (known | dict(fixed)).items()
    if value is not None
  }
  for key, text in notes.items():
    if text:
      record[key] = '. '.join(filter(None, (record[key].strip(), text)))
  return record


def problems(record: Mapping[str, Any]) -> list[str]:
  """What is wrong with a description; empty if nothing is."""
  found = []
  missing = [
    key for key in MEANINGFUL if not str(record.get(key) or '').strip()
  ]
  if missing:
    found.append(
      f'the system description lacks {", ".join(missing)}: write them into a'
      ' JSON object and give it by --system_description ("N/A" is an answer)'
    )
  for key in COUNTS:
    if key not in missing and not str(record[key]).isdecimal():
      found.append(
        f'{key} of the system description is {record[key]!r}; it must be a whole'
        ' number'
      )
  status = str(record.get('status', ''))
  if status and status.lower() not in STATUSES:
    found.append(
      f'status {status!r} of the system description is not known; choose one'
      f' of {", ".join(STATUSES)}'
    )
  if str(record.get('is_network', '')).lower() == 'true':
    absent = [key for key in NETWORK if key not in record]
    if absent:
      found.append(
        f'the description of a networked system lacks {", ".join(absent)}: give'
        ' them by --system_description'
      )
  return found


def text(record: Mapping[str, Any]) -> str:
  """The file's text."""
  return json.dumps(dict(record), indent=2) + '\n'
