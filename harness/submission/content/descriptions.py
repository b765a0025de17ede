"""Derives the descriptions of a system and of a model's weights."""

from collections.abc import Iterator, Mapping
import json
import os
import pathlib
import re
from typing import Any

from harness.benchmarks import all as benchmarks
from harness.description import description as description_lib
from harness.results import entry as entry_lib
from saxml_ext.common import errors
from saxml_ext.common import files
from saxml_ext.params import all_params  # noqa: F401 Registers them.
from saxml_ext.params import registry

# The keys of the measurements JSON.
KEYS = (
  'input_data_types',
  'retraining',
  'starting_weights_filename',
  'weight_data_types',
  'weight_transformations',
)

# The note of a result that can contain these values.
NOTE = 'measurements'

# Official names of types, by their names in results.
_TYPES = {'float32': 'fp32', 'float16': 'fp16', 'bfloat16': 'bf16'}
_INTEGERS = ('int4', 'int8')


def system_id(name: str) -> str:
  """Returns a name for folders: letters, digits, dots, dashes, underscores."""
  return re.sub(r'[^A-Za-z0-9._-]+', '_', name).strip('._')


def merged(
  detected: Mapping[str, Any],
  given: Mapping[str, Any],
  fixed: Mapping[str, Any],
  notes: Mapping[str, str],
) -> dict[str, str]:
  """Returns the merged system description.

  All values are strings, because checkers treat the number 0 as missing.

  Args:
    detected: The values that the results detected.
    given: The user's values, which replace detected ones.
    fixed: The values of flags, which replace both.
    notes: The text to append to a value, by key: hw_notes, sw_notes.
  """
  may_be_empty = {
    k: '' for k, v in description_lib.REQUIRED.items() if not v.filled
  }
  known = may_be_empty | dict(detected) | dict(given) | dict(fixed)
  record = {key: str(known[key]) for key in known if known[key] is not None}
  for key, text in notes.items():
    if text:
      record[key] = '. '.join(filter(None, (record[key].strip(), text)))
  return record


def system_problems(record: Mapping[str, str]) -> Iterator[str]:
  """Yields the problems of a system description."""
  missing = description_lib.missing(record)
  if missing:
    yield (
      f'The system description lacks {", ".join(missing)}. Write the values to'
      ' a JSON or YAML file and pass it as --system_description. "N/A" is a'
      ' valid value.'
    )
  try:
    description_lib.check(record)
  except ValueError as error:
    yield f'The system description is invalid: {error}'


def read_measurements(path: pathlib.Path) -> dict[str, Any]:
  """Reads the user's values of KEYS.

  Raises:
    OSError: The file cannot be read.
    ValueError: The file is not a JSON object with only these keys.
  """
  record: dict[str, Any] = files.read_json(path, dict[str, Any])
  for key, value in record.items():
    if key not in KEYS:
      raise ValueError(f'{path} has {key!r}. Use only {", ".join(KEYS)}.')
    if not isinstance(value, str) or not value.strip():
      raise ValueError(
        f'{path}: {key} is {value!r}. Write a text, or remove it.'
      )
  return record


def measurements(
  entry: entry_lib.Entry, given: Mapping[str, Any]
) -> dict[str, str | None]:
  """Returns the values of KEYS for a result, or None for an unknown value.

  Args:
    entry: The result. Its notes replace values that are derived from its other
      fields.
    given: The user's values, which replace all others.
  """
  kind = weight_type(entry)
  changes = []
  if system(entry).get('params'):
    changes.append('PyTorch checkpoint converted to PAX')
  if kind in _INTEGERS:
    changes.append(f'weights quantized to {kind}')
  paths = (system(entry).get(key) for key in ('checkpoint', 'model'))
  weights = next(
    (os.path.basename(str(p).rstrip('/')) for p in paths if p), None
  )
  known: dict[str, Any] = {
    'input_data_types': benchmarks.get(entry.benchmark).input_type,
    'retraining': 'no',
    'starting_weights_filename': weights,
    'weight_data_types': kind,
    'weight_transformations': '; '.join(changes) or 'none',
  }
  for more in (entry.notes.get(NOTE, {}), given):
    known |= {key: more[key] for key in KEYS if more.get(key)}
  return {key: known[key] and str(known[key]) for key in KEYS}


def measurement_problems(
  values: Mapping[str, str | None], name: str
) -> Iterator[str]:
  """Yields the problems of a result's measurements."""
  if missing := [key for key in KEYS if not values.get(key)]:
    yield (
      f'{name} lacks {", ".join(missing)}. Write the values to a JSON object'
      ' and pass it as --measurements.'
    )


def weight_type(entry: entry_lib.Entry) -> str | None:
  """Returns the type of the weights, such as fp32, or None if it is unknown."""
  quantized = attribute(entry, 'QUANTIZATION')
  if quantized and quantized != 'none':
    return next((name for name in _INTEGERS if name in quantized), quantized)
  kind = attribute(entry, 'FPROP_DTYPE') or system(entry).get('precision')
  return _TYPES.get(str(kind), str(kind)) if kind else None


def system(entry: entry_lib.Entry) -> Mapping[str, Any]:
  """Returns the parameters of the system that affect a result, by flag name."""
  return dict(entry.parameters.get('system', {})) | dict(
    entry.notes.get(entry_lib.SERVED, {})
  )


def attribute(entry: entry_lib.Entry, name: str) -> Any:
  """Returns an attribute of the serving params, or None if it is unknown.

  An override takes precedence over the attribute of the params.

  Args:
    entry: The result.
    name: The name of the attribute, such as BEAM_SIZE.
  """
  known = system(entry)
  overrides = known.get('overrides') or {}
  if name in overrides:
    value = overrides[name]
    try:
      return json.loads(value) if isinstance(value, str) else value
    except ValueError:
      return value
  if not known.get('params'):
    return None
  try:
    return getattr(registry.lookup(known['params']), name, None)
  except errors.InvalidArgument:
    return None  # Another server defined these params.


def beams(entry: entry_lib.Entry) -> int | None:
  """Returns the beam size, 1 without a beam search, or None if unknown."""
  if entry.system == 'reference':
    usual = benchmarks.get(entry.benchmark).search.beams
    return int(system(entry).get('beam_size') or usual)
  size = attribute(entry, 'BEAM_SIZE')
  if size is None:
    return None
  return int(size) if attribute(entry, 'USE_BEAM_SEARCH') else 1


def prefix_cache(entry: entry_lib.Entry) -> Any:
  """Returns the prompt prefix that is computed only once, or None."""
  return attribute(entry, 'PRECOMPUTE_KV_CACHE_PREFIX') or None
