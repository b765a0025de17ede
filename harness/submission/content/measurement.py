"""What a submission says of a model's weights: the measurements JSON."""

from collections.abc import Mapping
import json
import os
from typing import Any

from harness.loadgen import rounds
from harness.results import entry as entry_lib

KEYS = (
  'input_data_types',
  'retraining',
  'starting_weights_filename',
  'weight_data_types',
  'weight_transformations',
)

# A result may bring these values itself, by this name among its notes.
NOTE = 'measurements'

# Types of weights by what names hold, in the order in which they are looked for:
# bfloat16 holds float16.
_TYPES = {
  'INT4': 'int4',
  'INT8': 'int8',
  'BF16': 'bf16',
  'BFLOAT16': 'bf16',
  'FP16': 'fp16',
  'FLOAT16': 'fp16',
  'FP32': 'fp32',
  'FLOAT32': 'fp32',
}
# In the names of Sax's serving params FP16 stands for bfloat16.
_PARAMS_TYPES = _TYPES | {'FP16': 'bf16'}
_INPUTS = {rounds.GPTJ: 'int32', rounds.BERT: 'int64'}
_TRANSFORMATIONS = {
  rounds.GPTJ: 'PyTorch checkpoint converted to PAX',
  rounds.BERT: 'none',
}


def record(
  entry: entry_lib.Entry, given: Mapping[str, Any]
) -> dict[str, str | None]:
  """The values of KEYS for a result; None where nobody knows.

  Args:
    entry: of the result; its notes go before what can be told from the rest.
    given: the user's values, which go before everything.
  """
  kind = weight_type(entry)
  changes = (
    [] if entry.system != 'cell' else [_TRANSFORMATIONS[entry.benchmark]]
  )
  if kind in ('int8', 'int4'):
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
  """Type of the weights as names tell it; None if none does."""
  for key, types in (('precision', _TYPES), ('params', _PARAMS_TYPES)):
    value = str(entry.parameters.get(key) or '').upper()
    for name, kind in types.items():
      if name in value:
        return kind
  return None


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
  for key in ('checkpoint', 'model', 'base', 'model_file', 'checkpoint_path'):
    value = entry.parameters.get(key)
    if value:
      return os.path.basename(str(value).rstrip('/'))
  return None
