"""What a submission says of a model's weights: the measurements JSON."""

from collections.abc import Mapping
import json
import os
import pathlib
from typing import Any

from harness.results import entry as entry_lib
from harness.rules import rounds
from harness.submission.content import serving

KEYS = (
  'input_data_types',
  'retraining',
  'starting_weights_filename',
  'weight_data_types',
  'weight_transformations',
)

# A result may bring these values itself, by this name among its notes.
NOTE = 'measurements'

# Names of types by what results call them.
_TYPES = {'float32': 'fp32', 'float16': 'fp16', 'bfloat16': 'bf16'}
_INPUTS = {rounds.GPTJ: 'int32', rounds.BERT: 'int64'}
_INTEGERS = ('int4', 'int8')


def read(path: pathlib.Path) -> dict[str, Any]:
  """Reads values that the user wrote.

  Raises:
    OSError: the file cannot be read.
    ValueError: it is no JSON object of KEYS.
  """
  try:
    record = json.loads(path.read_text(encoding='utf-8'))
  except ValueError as error:
    raise ValueError(f'{path} is no JSON: {error}') from error
  if not isinstance(record, dict) or not set(record) <= set(KEYS):
    raise ValueError(f'{path} must hold a JSON object of {", ".join(KEYS)}')
  return record


def record(
  entry: entry_lib.Entry, given: Mapping[str, Any]
) -> dict[str, str | None]:
  """The values of KEYS for a result; None where nobody knows.

  Args:
    entry: of the result; its notes go before what can be told from the rest.
    given: the user's values, which go before everything.
  """
  kind = weight_type(entry)
  changes = []
  if serving.system(entry).get('params'):
    changes.append('PyTorch checkpoint converted to PAX')
  if kind in _INTEGERS:
    changes.append(f'weights quantized to {kind}')
  known: dict[str, Any] = {
    'input_data_types': _INPUTS.get(entry.benchmark),
    'retraining': 'no',
    'starting_weights_filename': _weights(entry),
    'weight_data_types': kind,
    'weight_transformations': '; '.join(changes) or 'none',
  }
  noted = entry.notes.get(NOTE, {})
  known |= {key: noted[key] for key in KEYS if noted.get(key)}
  known |= {key: given[key] for key in KEYS if given.get(key)}
  return {key: known[key] and str(known[key]) for key in KEYS}


def weight_type(entry: entry_lib.Entry) -> str | None:
  """Type of the weights, such as fp32; None where the result does not tell."""
  quantized = serving.attribute(entry, 'QUANTIZATION')
  if quantized and quantized != 'none':
    return next((each for each in _INTEGERS if each in quantized), quantized)
  kind = serving.attribute(entry, 'FPROP_DTYPE') or serving.system(entry).get(
    'precision'
  )
  return _TYPES.get(str(kind), str(kind)) if kind else None


def problems(values: Mapping[str, str | None], result: str) -> list[str]:
  """What is wrong with the values of a result."""
  missing = [key for key in KEYS if not values.get(key)]
  if not missing:
    return []
  return [
    f'{result} does not say {", ".join(missing)}: write them into a JSON object'
    ' and give it by --measurements'
  ]


def text(values: Mapping[str, str | None]) -> str:
  """The file's text."""
  return json.dumps(dict(values), indent=2) + '\n'


def _weights(entry: entry_lib.Entry) -> str | None:
  for key in ('checkpoint', 'model'):
    value = serving.system(entry).get(key)
    if value:
      return os.path.basename(str(value).rstrip('/'))
  return None
