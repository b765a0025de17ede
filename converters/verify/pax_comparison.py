"""Comparison of a PAX checkpoint with the float PAX one it came from."""

from collections.abc import Iterator, Mapping
import json
import os

from converters.convert import model_source
from converters.quantize import matrix_error
from converters.quantize import matrix_table
from converters.quantize import provenance
from converters.quantize import side_files
from converters.quantize.report import matrix_errors
from converters.verify import comparison
from saxml_ext.common import errors as common_errors
from saxml_ext.common import storage
from saxml_ext.pax import checkpoint
from saxml_ext.pax import errors
from saxml_ext.pax import metadata

# Rounding errs by half a step; computing the error in float32 adds to it.
_HALF_STEP = 0.5 + 1e-3
# A stated error was rounded to text and computed by another machine, maybe.
_STATED_SLACK = 1 + 1e-6
_NOTHING = metadata.ArraySpec((), '')


def compare(source: str, pax: str) -> Iterator[comparison.Comparison]:
  """Compares with a float PAX checkpoint; a line for each variable.

  Variables in int8 are compared by the values that they stand for: these may
  be half a step off, or as much as the report beside the checkpoint states.

  Raises:
    errors.CheckpointError: either side cannot be read.
  """
  exact, reader = checkpoint.Reader(source), checkpoint.Reader(pax)
  directory = side_files.directory_of(reader.step_dir)
  record = provenance.read(directory)
  stated = {m['name']: m for m in _report(directory).get('matrices', ())}
  expected = set(exact.specs)
  for name in exact.specs:
    if reader.specs.get(name, _NOTHING).dtype == 'int8':
      expected.add(matrix_table.scale_name(name))
      yield _compare_int8(exact, reader, record, name, stated.get(name))
    else:
      yield _compare_float(exact, reader, record, name)
  yield from comparison.unexpected(reader, expected)


def stated_logit_errors(pax: str) -> dict[str, float]:
  """Largest logit error that the report states, by how the model is run."""
  directory = side_files.directory_of(checkpoint.find_step_dir(pax))
  logits = _report(directory).get('logits') or ()
  return {e['quantization']: e['max_error'] for e in logits}


def _compare_float(
  exact: checkpoint.Reader,
  reader: checkpoint.Reader,
  record: provenance.Record | None,
  name: str,
) -> comparison.Comparison:
  name, spec, problem = comparison.check(reader, name, exact.specs[name].shape)
  if spec and not problem and spec.dtype not in model_source.DTYPES:
    problem = (
      f'expected {" or ".join(model_source.DTYPES)}, or int8 of a matrix'
    )
  if spec is None or problem:
    return comparison.Comparison(name, str(spec or '-'), None, problem=problem)
  expected = matrix_errors.source_value(exact, record, name)
  return comparison.compare_values(
    reader, name, expected.astype(model_source.DTYPES[spec.dtype], copy=False)
  )


def _compare_int8(
  exact: checkpoint.Reader,
  reader: checkpoint.Reader,
  record: provenance.Record | None,
  name: str,
  stated: Mapping | None,
) -> comparison.Comparison:
  name, spec, problem = comparison.check(reader, name, exact.specs[name].shape)
  problem = problem or _scale_problem(reader, name)
  if problem:
    return comparison.Comparison(name, str(spec), None, problem=problem)
  error = matrix_error.measure(
    name,
    matrix_errors.source_value(exact, record, name),
    reader.read(name),
    reader.read(matrix_table.scale_name(name)),
    record.options.bits if record else 8,
  )
  limit = stated['max_steps'] * _STATED_SLACK if stated else _HALF_STEP
  # Not "greater": a NaN is a problem too.
  if not error.max_steps <= limit:
    whose = 'stated' if stated else 'of rounding'
    problem = f'{error.max_steps:.3f} steps, beyond the {limit:.3f} {whose}'
  return comparison.Comparison(
    name,
    str(spec),
    error.max_error,
    f'{error.max_steps:.2f} steps, {error.snr_db:.1f} dB',
    problem
    or comparison.damage(reader, name)
    or comparison.damage(reader, matrix_table.scale_name(name)),
  )


def _scale_problem(reader: checkpoint.Reader, name: str) -> str:
  """What is wrong with the scale of an int8 variable; "" if nothing is."""
  summed = matrix_table.summed_dims(name)
  if summed is None:
    return 'only matrices of products may be int8'
  shape = matrix_table.scale_shape(reader.specs[name].shape, summed)
  wanted = metadata.ArraySpec(shape, 'float32')
  scale = matrix_table.scale_name(name)
  found = reader.specs.get(scale)
  if found != wanted:
    return f'{scale} is {found or "missing"}, not {wanted}'
  return ''


def _report(directory: str) -> dict:
  path = os.path.join(directory, side_files.REPORT_JSON)
  try:
    if not storage.exists(path):
      return {}
    document = json.loads(storage.read_bytes(path))
    if not isinstance(document, dict):
      raise ValueError(f'it holds a {type(document).__name__}')
    return document
  except (OSError, common_errors.SaxError, ValueError) as e:
    raise errors.CheckpointError(f'{path} cannot be read: {e}') from e
