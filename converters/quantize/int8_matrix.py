"""Defines the matrices that become int8, their inputs and their errors.

The engine's table of variables lists the matrices and the dims that products
sum over:

  name ends in                      shape         summed over  scale
  self_attention.combined_qkv.w     [3, D, N, H]  D            [3, N, H]
  self_attention.post.w             [D, N, H]     N, H         [D]
  ff_layer.ffn_layer1.linear.w      [D, F]        D            [F]
  ff_layer.ffn_layer1_gate.linear.w [D, F]        D            [F]
  ff_layer.ffn_layer2.linear.w      [F, D]        F            [D]
  softmax.logits_ffn.linear.w       [D, V]        D            [V], if requested

The format follows Sax's "gptj" configuration. The int8 variable keeps its name
and shape. Its float32 scale is stored next to it as `w_quantized_scale`. All
other variables stay unchanged. A value is its code times its scale. The
algorithms use matrices [outputs, inputs] with one scale per row.
"""

from collections.abc import Sequence
import dataclasses
import math

import numpy as np

from saxml_ext.engine import architecture
from saxml_ext.engine import variables

# The number of rows to process at once. Temporary arrays stay small compared
# with a matrix.
_ROWS = 256

# The variables of GPT-J, and the additional ones of other dense decoders.
TABLE = variables.table_of(
  architecture.Architecture(
    residual=architecture.PARALLEL, gated=True, biases=architecture.BIASES
  )
)


def summed_dims(name: str, softmax: bool = True) -> tuple[int, ...] | None:
  """Returns the dims that products sum over, or None if a variable stays float.

  Args:
    name: The name of the variable.
    softmax: True if the head's matrix is quantized too.
  """
  row = TABLE.named(name)
  if row is None or not row.is_matrix or (row.field == 'head' and not softmax):
    return None
  return row.contracted_dims


def inputs_of(name: str) -> str | None:
  """Returns the field of `engine.model.Taps` with the inputs of a matrix.

  Args:
    name: The name of the matrix.

  Returns:
    The name of the field, or None for the matrix of the head.
  """
  row = TABLE.named(name)
  return row.inputs if row else None


def scale_name(name: str) -> str:
  """Returns the name of the scale of a variable."""
  return name + variables.SCALE_SUFFIX


def scale_shape(shape: Sequence[int], summed: Sequence[int]) -> tuple[int, ...]:
  return tuple(n for i, n in enumerate(shape) if i not in summed)


def as_rows(value: np.ndarray, summed: Sequence[int]) -> np.ndarray:
  """Returns a variable as a matrix [outputs, inputs], as a view if possible."""
  outputs = [i for i in range(value.ndim) if i not in summed]
  inputs = math.prod(value.shape[i] for i in summed)
  return value.transpose(*outputs, *summed).reshape(-1, inputs)


def from_rows(
  rows: np.ndarray, shape: Sequence[int], summed: Sequence[int]
) -> np.ndarray:
  """Returns the C-contiguous variable that `as_rows` turned into `rows`."""
  order = [i for i in range(len(shape)) if i not in summed] + list(summed)
  value = rows.reshape([shape[i] for i in order])
  return np.ascontiguousarray(value.transpose(np.argsort(order)))


@dataclasses.dataclass(frozen=True)
class InputStats:
  """The calibration statistics of one matrix's inputs.

  Attributes:
    peak: The largest absolute values, [inputs].
    mean_square: The mean squares, [inputs].
    hessian: The mean products of pairs of inputs, [inputs, inputs] float32. It
      is half the Hessian of the mean squared error of the outputs. None if it
      was not requested.
  """

  peak: np.ndarray
  mean_square: np.ndarray
  hessian: np.ndarray | None


@dataclasses.dataclass(frozen=True)
class MatrixError:
  """The quantization errors of one matrix.

  Attributes:
    name: The name of the variable.
    relative_rms: The square root of the sum of squared errors, divided by that
      of squared values.
    max_steps: The largest error as a multiple of its row's scale. It is at most
      0.5, except for clipped values and for GPTQ.
    max_error: The largest error.
    clipped: The share of values that exceed the largest code by more than the
      rounding error.
  """

  name: str
  relative_rms: float
  max_steps: float
  max_error: float
  clipped: float

  @property
  def snr_db(self) -> float:
    """The signal-to-noise ratio in decibels; infinite if there is no error."""
    if not self.relative_rms:
      return float('inf')
    return -20 * float(np.log10(self.relative_rms))


def report_order(name: str) -> tuple[bool, int, str]:
  """Returns the sort key of a variable in reports: by layer, the head last."""
  layer = variables.layer_of(name)
  return layer is None, layer or 0, name


def measure(
  name: str, value: np.ndarray, codes: np.ndarray, scale: np.ndarray, bits: int
) -> MatrixError:
  """Measures the quantization error of one matrix.

  Args:
    name: The name of the variable.
    value: The variable before rounding.
    codes: The int8 codes, in the same shape.
    scale: The float32 scales, in the shape that `scale_shape` returns.
    bits: The number of bits of a code.

  Raises:
    ValueError: The variable is not a matrix that can be quantized.
  """
  summed = summed_dims(name)
  if summed is None:
    raise ValueError(
      f'{name} is not a matrix that can be quantized. Only the variables in the'
      ' table have codes and scales.'
    )
  rows = as_rows(value, summed)
  codes = as_rows(codes, summed)
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
    # np.maximum keeps a NaN. max() over the parts would drop it.
    steps = float(np.maximum(steps, (difference / scale[part]).max()))
    error = float(np.maximum(error, difference.max()))
    clipped += float((np.abs(exact) > (largest + 0.5) * scale[part]).sum())
  relative = (noise / signal) ** 0.5 if signal else 0.0
  return MatrixError(name, relative, steps, error, clipped / rows.size)
