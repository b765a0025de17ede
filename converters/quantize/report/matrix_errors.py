"""Measures the errors of the matrices in a finished INT8 checkpoint."""

from collections.abc import Iterator

import numpy as np

from converters.quantize import int8_matrix
from converters.quantize import provenance
from converters.quantize import smoothing
from saxml_ext.engine import variables
from saxml_ext.pax import checkpoint
from saxml_ext.pax import errors


def source_value(
  source: checkpoint.Reader, record: provenance.Record | None, name: str
) -> np.ndarray:
  """Returns a variable of the source with the values that were rounded.

  Args:
    source: The float checkpoint.
    record: The record of the INT8 checkpoint, which has its exponents.
    name: The name of the variable.

  Raises:
    errors.CheckpointError: The record is for another checkpoint.
  """
  value = source.read(name)
  layer = variables.layer_of(name)
  if layer is None or not (record and record.exponents):
    return value
  if layer >= len(record.exponents):
    raise errors.CheckpointError(
      f'{provenance.FILE_NAME} has exponents of {len(record.exponents)} layers,'
      f' but the source has {name}. The file belongs to another checkpoint.'
    )
  return smoothing.apply_to_one(name, value, record.exponents[layer])


def matrix_errors(
  source: checkpoint.Reader,
  quantized: checkpoint.Reader,
  record: provenance.Record | None,
) -> Iterator[int8_matrix.MatrixError]:
  """Yields the errors of all int8 matrices in layer order, the head last."""
  names = [n for n, spec in quantized.specs.items() if spec.dtype == 'int8']
  bits = record.options.bits if record else 8
  for name in sorted(names, key=int8_matrix.report_order):
    yield int8_matrix.measure(
      name,
      source_value(source, record, name),
      quantized.read(name),
      quantized.read(int8_matrix.scale_name(name)),
      bits,
    )
