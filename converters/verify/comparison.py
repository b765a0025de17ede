"""Comparison of a PAX checkpoint with the one it came from."""

from collections.abc import Callable, Iterator, Mapping
import dataclasses
import functools
import os

import numpy as np

from converters.convert import model_source
from converters.quantize import int8_matrix
from converters.quantize import provenance
from converters.quantize.report import matrix_errors
from saxml_ext.common import files
from saxml_ext.common import storage
from saxml_ext.pax import checkpoint
from saxml_ext.pax import errors
from saxml_ext.pax import metadata

# Rounding errs by half a step; computing the error in float32 adds to it.
_HALF_STEP = 0.5 + 1e-3
# A stated error was rounded to text and computed by another machine, maybe.
_STATED_SLACK = 1 + 1e-6
# What the name of a line of logits begins with.
LOGITS = 'logits:'


@dataclasses.dataclass(frozen=True)
class Comparison:
  """One line: a variable, or logits.

  Attributes:
    name: of what was compared.
    found: its type and shape.
    max_difference: the largest; None where there is none.
    note: more that is good to know.
    problem: what is wrong; empty if nothing is.
  """

  name: str
  found: str
  max_difference: float | None
  note: str = ''
  problem: str = ''


def compare_with_hf(base: str, pax: str) -> Iterator[Comparison]:
  """Compares with a Hugging Face checkpoint; a line for each variable.

  Raises:
    errors.CheckpointError: Either side cannot be read.
  """
  source = model_source.ModelSource(base)
  reader = checkpoint.Reader(pax)
  for variable in source.variables:
    build = functools.partial(source.build, variable)
    yield _compare(reader, variable.name, variable.shape, build)
  yield from _unexpected(reader, {v.name for v in source.variables})


def compare_with_pax(source: str, pax: str) -> Iterator[Comparison]:
  """Compares with a float PAX checkpoint; a line for each variable.

  Variables in int8 are compared by the values that they stand for: these may
  be half a step off, or as much as the report beside the checkpoint states.

  Raises:
    errors.CheckpointError: either side cannot be read.
  """
  exact, reader = checkpoint.Reader(source), checkpoint.Reader(pax)
  record = provenance.read(reader.directory)
  stated = {m['name']: m for m in _report(reader).get('matrices', ())}
  expected = set(exact.specs)
  for name in exact.specs:
    if name in reader.specs and reader.specs[name].dtype == 'int8':
      expected.add(int8_matrix.scale_name(name))
      yield _compare_int8(exact, reader, record, name, stated.get(name))
    else:
      yield _compare_float(exact, reader, record, name)
  yield from _unexpected(reader, expected)


def stated_logit_errors(reader: checkpoint.Reader) -> dict[str, float]:
  """Returns the largest logit errors that the report states.

  Returns:
    The errors by how the model is run.
  """
  logits = _report(reader).get('logits') or ()
  return {e['quantization']: e['max_error'] for e in logits}


def _compare_float(
  exact: checkpoint.Reader,
  reader: checkpoint.Reader,
  record: provenance.Record | None,
  name: str,
) -> Comparison:
  return _compare(
    reader,
    name,
    exact.specs[name].shape,
    lambda dtype: matrix_errors.source_value(exact, record, name).astype(
      dtype, copy=False
    ),
    ', or int8 of a matrix',
  )


def _compare_int8(
  exact: checkpoint.Reader,
  reader: checkpoint.Reader,
  record: provenance.Record | None,
  name: str,
  stated: Mapping | None,
) -> Comparison:
  spec, problem = _check(reader, name, exact.specs[name].shape)
  problem = problem or _scale_problem(reader, name)
  if problem:
    return Comparison(name, str(spec), None, problem=problem)
  error = int8_matrix.measure(
    name,
    matrix_errors.source_value(exact, record, name),
    reader.read(name),
    reader.read(int8_matrix.scale_name(name)),
    record.options.bits if record else 8,
  )
  limit = stated['max_steps'] * _STATED_SLACK if stated else _HALF_STEP
  # Not "greater": a NaN is a problem too.
  if not error.max_steps <= limit:
    whose = 'stated' if stated else 'of rounding'
    problem = f'{error.max_steps:.3f} steps, beyond the {limit:.3f} {whose}'
  return Comparison(
    name,
    str(spec),
    error.max_error,
    f'{error.max_steps:.2f} steps, {error.snr_db:.1f} dB',
    problem
    or _damage(reader, name)
    or _damage(reader, int8_matrix.scale_name(name)),
  )


def _scale_problem(reader: checkpoint.Reader, name: str) -> str:
  """Returns what is wrong with the scale of an int8 variable, or ''."""
  summed = int8_matrix.summed_dims(name)
  if summed is None:
    return 'only matrices of products may be int8'
  shape = int8_matrix.scale_shape(reader.specs[name].shape, summed)
  wanted = metadata.ArraySpec(shape, 'float32')
  scale = int8_matrix.scale_name(name)
  found = reader.specs.get(scale)
  if found != wanted:
    return f'{scale} is {found or "missing"}, not {wanted}'
  return ''


def _report(reader: checkpoint.Reader) -> dict:
  """Returns the figures of the report beside a checkpoint; {} without one."""
  path = os.path.join(reader.directory, provenance.REPORT_JSON)
  with errors.reading(path):
    if not storage.exists(path):
      return {}
    return files.decode_json(storage.read_bytes(path), dict, path)


def _compare(
  reader: checkpoint.Reader,
  name: str,
  shape: tuple[int, ...],
  expected: Callable[[np.dtype], np.ndarray],
  more: str = '',
) -> Comparison:
  """Compares a variable with the only values that it may have.

  Args:
    reader: The checkpoint that is verified.
    name: The name of the variable.
    shape: The shape that it should have.
    expected: Returns the values in a type.
    more: What else the variable might be, for messages.
  """
  spec, problem = _check(reader, name, shape)
  if spec and not problem and spec.dtype not in model_source.DTYPES:
    problem = f'expected {" or ".join(model_source.DTYPES)}{more}'
  if spec is None or problem:
    return Comparison(name, str(spec or '-'), None, problem=problem)
  values = expected(model_source.DTYPES[spec.dtype])
  difference = _max_difference(reader.read(name), values)
  # A NaN compares as different too.
  problem = '' if difference == 0 else 'differs'
  return Comparison(
    name, str(spec), difference, problem=problem or _damage(reader, name)
  )


def _check(
  reader: checkpoint.Reader, name: str, shape: tuple[int, ...]
) -> tuple[metadata.ArraySpec | None, str]:
  """Returns the variable of a name, and what is wrong with it."""
  spec = reader.specs.get(name)
  if spec is None:
    return None, 'missing'
  return spec, '' if spec.shape == shape else f'expected shape {list(shape)}'


def _damage(reader: checkpoint.Reader, name: str) -> str:
  """Returns how a variable differs from its checksum; '' if it does not."""
  try:
    reader.verify(name)
  except errors.CheckpointError as e:
    return str(e)
  return ''


def _unexpected(
  reader: checkpoint.Reader, expected: set[str]
) -> Iterator[Comparison]:
  """Yields a line for each variable that should not be there."""
  for name, spec in reader.specs.items():
    if name not in expected:
      yield Comparison(name, str(spec), None, problem='unexpected')


def _max_difference(a: np.ndarray, b: np.ndarray) -> float:
  """Returns the largest |a - b|; NaN if either has one."""
  a, b = a.reshape(-1), b.reshape(-1)
  largest = 0.0
  for begin in range(0, a.size, 1 << 22):
    part = slice(begin, begin + (1 << 22))
    difference = np.abs(
      a[part].astype(np.float32) - b[part].astype(np.float32)
    ).max()
    largest = np.maximum(largest, difference)
  return float(largest)
