"""Compares a PAX checkpoint with its source checkpoint."""

from collections.abc import Callable, Iterator, Mapping
import dataclasses
import functools
import os

import numpy as np

from converters.convert import model_source
from converters.hf import checkpoint as hf_checkpoint
from converters.quantize import int8_matrix
from converters.quantize import provenance
from converters.quantize.report import matrix_errors
from saxml_ext.common import files
from saxml_ext.common import storage
from saxml_ext.pax import checkpoint
from saxml_ext.pax import errors
from saxml_ext.pax import metadata

# Rounding has an error of up to half a step. Computing the error in float32
# adds a small error.
_HALF_STEP = 0.5 + 1e-3
# A stated error was rounded to text, and possibly computed on another machine.
_STATED_SLACK = 1 + 1e-6
# The prefix of the name in lines about logits.
LOGITS = 'logits:'


@dataclasses.dataclass(frozen=True)
class Comparison:
  """The result of comparing one variable, or logits.

  Attributes:
    name: The name of the variable.
    actual: The type and shape of the variable.
    max_difference: The largest difference; None if there is none to compute.
    note: Additional information.
    problem: The error message; empty if there is no problem.
  """

  name: str
  actual: str
  max_difference: float | None
  note: str = ''
  problem: str = ''


def compare_with_hf(
  base: str | hf_checkpoint.Checkpoint, pax: str
) -> Iterator[Comparison]:
  """Compares a checkpoint with a Hugging Face checkpoint.

  Args:
    base: The Hugging Face directory, or an open checkpoint.
    pax: The checkpoint to verify.

  Yields:
    The result for each variable.

  Raises:
    errors.CheckpointError: A checkpoint cannot be read.
  """
  source = model_source.ModelSource(base)
  reader = checkpoint.Reader(pax)
  for variable in source.variables:
    build = functools.partial(source.build, variable)
    yield _compare(reader, variable.name, variable.shape, build)
  yield from _unexpected(reader, {v.name for v in source.variables})


def compare_with_pax(source: str, pax: str) -> Iterator[Comparison]:
  """Compares a checkpoint with a float PAX checkpoint.

  Variables in int8 are compared by the values that their codes stand for. These
  may differ by half a step, or by the error in the report of the checkpoint.

  Args:
    source: The float checkpoint.
    pax: The checkpoint to verify.

  Yields:
    The result for each variable.

  Raises:
    errors.CheckpointError: A checkpoint cannot be read.
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
  """Returns the largest logit errors in the report of a checkpoint.

  Args:
    reader: The checkpoint.

  Returns:
    The errors by the way to run the model.
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
  # The condition is not `>`, because a NaN is a problem too.
  if not error.max_steps <= limit:
    kind = 'stated' if stated else 'rounding'
    problem = f'{error.max_steps:.3f} steps exceed the {kind} error {limit:.3f}'
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
  """Returns an error message about an int8 variable's scale, or ''."""
  summed = int8_matrix.summed_dims(name)
  if summed is None:
    return 'not a matrix that may be int8'
  shape = int8_matrix.scale_shape(reader.specs[name].shape, summed)
  expected = metadata.ArraySpec(shape, 'float32')
  scale = int8_matrix.scale_name(name)
  spec = reader.specs.get(scale)
  if spec != expected:
    return f'{scale} is {spec or "missing"}, expected {expected}'
  return ''


def _report(reader: checkpoint.Reader) -> dict:
  """Returns the figures of the checkpoint's report, or {} if there is none."""
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
  """Compares a variable with its only valid values.

  Args:
    reader: The checkpoint to verify.
    name: The name of the variable.
    shape: The expected shape.
    expected: A function that returns the expected values in a given type.
    more: An alternative description of the variable, for messages.
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
  """Returns the spec of a variable, and an error message or ''."""
  spec = reader.specs.get(name)
  if spec is None:
    return None, 'missing'
  return spec, '' if spec.shape == shape else f'expected shape {list(shape)}'


def _damage(reader: checkpoint.Reader, name: str) -> str:
  """Returns an error message if the checksum does not match, or ''."""
  try:
    reader.verify(name)
  except errors.CheckpointError as e:
    return str(e)
  return ''


def _unexpected(
  reader: checkpoint.Reader, expected: set[str]
) -> Iterator[Comparison]:
  """Yields a result for each variable that is not expected."""
  for name, spec in reader.specs.items():
    if name not in expected:
      yield Comparison(name, str(spec), None, problem='unexpected')


def _max_difference(a: np.ndarray, b: np.ndarray) -> float:
  """Returns the largest |a - b|; NaN if either array has a NaN."""
  a, b = a.reshape(-1), b.reshape(-1)
  largest = 0.0
  for begin in range(0, a.size, 1 << 22):
    part = slice(begin, begin + (1 << 22))
    difference = np.abs(
      a[part].astype(np.float32) - b[part].astype(np.float32)
    ).max()
    largest = np.maximum(largest, difference)
  return float(largest)
