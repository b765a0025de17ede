"""Comparison of a PAX checkpoint with the checkpoint it came from."""

from collections.abc import Iterator, Mapping
import dataclasses
import json
import os

import numpy as np

from converters import gptj_source
from converters import quantization_errors
from converters import quantization_model
from converters import quantization_record
from converters import quantization_report
from converters import quantized_matrices
from saxml_ext.common import errors as common_errors
from saxml_ext.common import storage
from saxml_ext.pax import checkpoint
from saxml_ext.pax import errors
from saxml_ext.pax import layout
from saxml_ext.pax import metadata

# What the name of a line of logits begins with.
LOGITS = 'logits:'
# Rounding errs by half a step; computing the error in float32 adds to it.
_HALF_STEP = 0.5 + 1e-3
# A stated error was rounded to text and computed by another machine, maybe.
_STATED_SLACK = 1 + 1e-6


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


def compare(base: str, pax: str) -> Iterator[Comparison]:
  """Compares with a Hugging Face checkpoint; a line for each variable.

  Raises:
    errors.CheckpointError: either side cannot be read.
  """
  source = gptj_source.GPTJSource(base)
  reader = checkpoint.Reader(pax)
  for variable in source.variables:
    yield _compare_with_hf(source, reader, variable)
  expected = {v.name for v in source.variables}
  yield from _unexpected(reader, expected)


def compare_with_pax(source: str, pax: str) -> Iterator[Comparison]:
  """Compares with a float PAX checkpoint; a line for each variable.

  Variables in int8 are compared by the values that they stand for: these may
  be half a step off, or as much as the report beside the checkpoint states.

  Raises:
    errors.CheckpointError: either side cannot be read.
  """
  exact, reader = checkpoint.Reader(source), checkpoint.Reader(pax)
  directory = quantization_model.directory_of(reader.step_dir)
  record = quantization_record.read(directory)
  stated = {m['name']: m for m in _report(directory).get('matrices', ())}
  expected = set(exact.specs)
  for name in exact.specs:
    if reader.specs.get(name, _NOTHING).dtype == 'int8':
      expected.add(quantized_matrices.scale_name(name))
      yield _compare_int8(exact, reader, record, name, stated.get(name))
    else:
      yield _compare_float(exact, reader, record, name)
  yield from _unexpected(reader, expected)


def stated_logit_errors(pax: str) -> dict[str, float]:
  """Largest logit error that the report states, by how the model is run."""
  directory = quantization_model.directory_of(checkpoint.find_step_dir(pax))
  logits = _report(directory).get('logits') or ()
  return {e['quantization']: e['max_error'] for e in logits}


_NOTHING = metadata.ArraySpec((), '')


def _compare_with_hf(
    source: gptj_source.GPTJSource,
    reader: checkpoint.Reader,
    variable: layout.Variable,
) -> Comparison:
  name, spec, problem = _check(reader, variable.name, variable.shape)
  if not problem and spec.dtype not in gptj_source.DTYPES:
    problem = f'expected {" or ".join(gptj_source.DTYPES)}'
  if problem:
    return Comparison(name, str(spec or '-'), None, problem=problem)
  expected = source.build(variable, gptj_source.DTYPES[spec.dtype])
  return _compare_values(reader, name, expected)


def _compare_float(
    exact: checkpoint.Reader,
    reader: checkpoint.Reader,
    record: quantization_record.Record | None,
    name: str,
) -> Comparison:
  name, spec, problem = _check(reader, name, exact.specs[name].shape)
  if not problem and spec.dtype not in gptj_source.DTYPES:
    problem = f'expected {" or ".join(gptj_source.DTYPES)}, or int8 of a matrix'
  if problem:
    return Comparison(name, str(spec or '-'), None, problem=problem)
  expected = quantization_errors.source_value(exact, record, name)
  return _compare_values(
      reader, name, expected.astype(gptj_source.DTYPES[spec.dtype], copy=False)
  )


def _compare_values(
    reader: checkpoint.Reader, name: str, expected: np.ndarray
) -> Comparison:
  difference = max_difference(reader.read(name), expected)
  # A NaN compares as different too.
  problem = '' if difference == 0 else 'differs'
  return Comparison(
      name,
      str(reader.specs[name]),
      difference,
      problem=problem or _damage(reader, name),
  )


def _compare_int8(
    exact: checkpoint.Reader,
    reader: checkpoint.Reader,
    record: quantization_record.Record | None,
    name: str,
    stated: Mapping | None,
) -> Comparison:
  name, spec, problem = _check(reader, name, exact.specs[name].shape)
  summed = quantized_matrices.summed_dims(name)
  if not problem and summed is None:
    problem = 'only matrices of products may be int8'
  if not problem:
    scale = quantized_matrices.scale_name(name)
    wanted = metadata.ArraySpec(
        quantized_matrices.scale_shape(spec.shape, summed), 'float32'
    )
    if reader.specs.get(scale) != wanted:
      problem = f'{scale} is {reader.specs.get(scale, "missing")}, not {wanted}'
  if problem:
    return Comparison(name, str(spec), None, problem=problem)
  error = quantization_errors.matrix_error(
      name,
      quantization_errors.source_value(exact, record, name),
      reader.read(name),
      reader.read(scale),
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
      problem or _damage(reader, name) or _damage(reader, scale),
  )


def _check(
    reader: checkpoint.Reader, name: str, shape: tuple[int, ...]
) -> tuple[str, metadata.ArraySpec | None, str]:
  """The name, what there is of that name, and what is wrong with it."""
  spec = reader.specs.get(name)
  if spec is None:
    return name, None, 'missing'
  if spec.shape != shape:
    return name, spec, f'expected shape {list(shape)}'
  return name, spec, ''


def _damage(reader: checkpoint.Reader, name: str) -> str:
  """What the manifest has against a variable, if there is a manifest."""
  try:
    reader.verify(name)
  except errors.CheckpointError as e:
    return str(e)
  return ''


def _unexpected(
    reader: checkpoint.Reader, expected: set[str]
) -> Iterator[Comparison]:
  for name, spec in reader.specs.items():
    if name not in expected:
      yield Comparison(name, str(spec), None, problem='unexpected')


def _report(directory: str) -> dict:
  path = os.path.join(directory, quantization_report.JSON_NAME)
  try:
    if not storage.exists(path):
      return {}
    document = json.loads(storage.read_bytes(path))
    if not isinstance(document, dict):
      raise ValueError(f'it holds a {type(document).__name__}')
    return document
  except (OSError, common_errors.SaxError, ValueError) as e:
    raise errors.CheckpointError(f'{path} cannot be read: {e}') from e


def max_difference(a: np.ndarray, b: np.ndarray) -> float:
  """Largest |a - b|; NaN if either has one."""
  a, b = a.reshape(-1), b.reshape(-1)
  largest = 0.0
  for begin in range(0, a.size, 1 << 22):
    part = slice(begin, begin + (1 << 22))
    difference = np.abs(
        a[part].astype(np.float32) - b[part].astype(np.float32)
    ).max()
    largest = np.maximum(largest, difference)
  return float(largest)
