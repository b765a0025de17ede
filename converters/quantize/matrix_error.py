"""How far an int8 matrix is from the float matrix that it was made of."""

import dataclasses

import numpy as np

from converters.quantize import matrix_table
from saxml_ext.engine import variables

# Rows handled together: their temporaries are to stay small beside a matrix.
_ROWS = 256


@dataclasses.dataclass(frozen=True)
class MatrixError:
  """Errors of the values that a matrix' codes stand for.

  Attributes:
    name: The variable's name.
    relative_rms: Root of the sum of squared errors over that of squared values.
    max_steps: Largest error as a multiple of its row's scale: 0.5 at most, but
      for what was clipped and for GPTQ.
    max_error: Largest error.
    clipped: Share of values beyond the largest code by more than rounding.
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


def report_order(name: str) -> tuple[bool, int, str]:
  """Sorts variables as a report lists them: by layer, the head last."""
  layer = variables.layer_of(name)
  return layer is None, layer or 0, name


def measure(
  name: str,
  value: np.ndarray,
  codes: np.ndarray,
  scale: np.ndarray,
  bits: int,
) -> MatrixError:
  """Measures the error of one matrix.

  Args:
    name: The variable's name.
    value: The variable before rounding, of the variable's shape.
    codes: The int8 codes, of the same shape.
    scale: The float32 scales, as `matrix_table.scale_shape` has them.
    bits: Bits of a code.

  Raises:
    ValueError: The variable is not a matrix that can be quantized.
  """
  summed = matrix_table.summed_dims(name)
  if summed is None:
    raise ValueError(
      f'{name} is not a matrix that can be quantized; only the variables that'
      ' matrix_table lists have codes and scales'
    )
  rows = matrix_table.as_rows(value, summed)
  codes = matrix_table.as_rows(codes, summed)
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
