"""How far an INT8 checkpoint's matrices are from those they were made of."""

from collections.abc import Iterator
import dataclasses
import re

import numpy as np

from converters import quantization_record
from converters import quantization_smoothing
from converters import quantized_matrices
from saxml_ext.pax import checkpoint
from saxml_ext.pax import errors

_LAYER = re.compile(r'(?:.*\.)?x_layers_(\d+)\.')
_ROWS = 256


@dataclasses.dataclass(frozen=True)
class MatrixError:
  """Errors of the values that a matrix' codes stand for.

  Attributes:
    name: of the variable.
    relative_rms: root of the sum of squared errors over that of squared values.
    max_steps: largest error as a multiple of its row's scale: 0.5 at most, but
      for what was clipped and for GPTQ.
    max_error: largest error.
    clipped: share of values beyond the largest code by more than rounding.
  """

  name: str
  relative_rms: float
  max_steps: float
  max_error: float
  clipped: float

  @property
  def snr_db(self) -> float:
    """Signal to noise in decibels; infinite without any error."""
    if not self.relative_rms:
      return float('inf')
    return -20 * float(np.log10(self.relative_rms))


def layer_of(name: str) -> int | None:
  """Index of the layer that a variable belongs to; None for the others."""
  match = _LAYER.match(name)
  return int(match[1]) if match else None


def source_value(
    source: checkpoint.Reader,
    record: quantization_record.Record | None,
    name: str,
) -> np.ndarray:
  """A variable of the source as it was right before rounding.

  Args:
    source: the float checkpoint.
    record: of the INT8 checkpoint, for its exponents.
    name: of the variable.
  """
  value = source.read(name)
  layer = layer_of(name)
  if layer is None or not (record and record.exponents):
    return value
  if layer >= len(record.exponents):
    raise errors.CheckpointError(
        f'{quantization_record.FILE_NAME} has exponents of '
        f'{len(record.exponents)} layers, but there is {name}; it is of '
        'another checkpoint'
    )
  return quantization_smoothing.apply_to_one(
      name, value, layer, record.exponents[layer]
  )


def matrix_error(
    name: str,
    value: np.ndarray,
    codes: np.ndarray,
    scale: np.ndarray,
    bits: int,
) -> MatrixError:
  """Error of one matrix.

  Args:
    name: of the variable.
    value: before rounding, of the variable's shape.
    codes: int8, of the same shape.
    scale: float32, as beside them.
    bits: of a code.
  """
  summed = quantized_matrices.summed_dims(name)
  rows = quantized_matrices.as_rows(value, summed)
  codes = quantized_matrices.as_rows(codes, summed)
  scale = scale.reshape(-1, 1)
  largest = (1 << (bits - 1)) - 1
  noise = signal = 0.0
  steps = error = clipped = 0.0
  for begin in range(0, len(rows), _ROWS):
    part = slice(begin, begin + _ROWS)
    exact = rows[part].astype(np.float32)
    difference = np.abs(codes[part] * scale[part] - exact)
    noise += float(np.square(difference, dtype=np.float64).sum())
    signal += float(np.square(exact, dtype=np.float64).sum())
    # A NaN stays one: max() of the parts would drop it.
    steps = float(np.maximum(steps, (difference / scale[part]).max()))
    error = float(np.maximum(error, difference.max()))
    clipped += float((np.abs(exact) > (largest + 0.5) * scale[part]).sum())
  relative = (noise / signal) ** 0.5 if signal else 0.0
  return MatrixError(name, relative, steps, error, clipped / rows.size)


def matrix_errors(
    source: checkpoint.Reader,
    quantized: checkpoint.Reader,
    record: quantization_record.Record | None,
) -> Iterator[MatrixError]:
  """Errors of all int8 matrices, layer by layer, the head's last."""
  names = [n for n, spec in quantized.specs.items() if spec.dtype == 'int8']
  bits = record.options.bits if record else 8

  def order(name: str) -> tuple[bool, int, str]:
    layer = layer_of(name)
    return layer is None, layer or 0, name

  for name in sorted(names, key=order):
    yield matrix_error(
        name,
        source_value(source, record, name),
        quantized.read(name),
        quantized.read(quantized_matrices.scale_name(name)),
        bits,
    )
