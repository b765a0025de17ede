"""Matrices that become int8: which they are, their inputs and their errors.

The engine's table of variables lists them, and the dims that products sum over:

  name ends in                      shape         summed over  scale
  self_attention.combined_qkv.w     [3, D, N, H]  D            [3, N, H]
  self_attention.post.w             [D, N, H]     N, H         [D]
  ff_layer.ffn_layer1.linear.w      [D, F]        D            [F]
  ff_layer.ffn_layer2.linear.w      [F, D]        F            [D]
  softmax.logits_ffn.linear.w       [D, V]        D            [V], if asked for

As in Sax' "gptj" configuration: the int8 variable keeps its name and shape, its
float32 scale lies beside it as `w_quantized_scale`, and all else stays as it
is. A value is its code times its scale. Algorithms see a matrix [outputs,
inputs], one row per scale.
"""

from collections.abc import Sequence
import dataclasses
import math

import numpy as np

from saxml_ext.engine import architecture
from saxml_ext.engine import variables

# Rows handled together: their temporaries are to stay small beside a matrix.
_ROWS = 256

# What GPT-J has, and all that other families of dense decoders may have beside.
TABLE = variables.table_of(
  architecture.Architecture(
    residual=architecture.PARALLEL, biases=architecture.BIASES
  )
)


def summed_dims(name: str, softmax: bool = True) -> tuple[int, ...] | None:
  """Returns the dims that products sum over, or None if a variable stays float.

  Args:
    name: The name of the variable.
    softmax: True if the head's matrix is one to quantize.
  """
  row = TABLE.named(name)
  if row is None or not row.is_matrix or (row.field == 'head' and not softmax):
    return None
  return row.contracted_dims


def inputs_of(name: str) -> str | None:
  """Returns the field of `engine.model.Taps` that a matrix is multiplied with.

  That of the head's matrix is None.
  """
  row = TABLE.named(name)
  return row.inputs if row else None


def scale_name(name: str) -> str:
  """Returns the name of the scale of variable `name`."""
  return name + variables.SCALE_SUFFIX


def scale_shape(shape: Sequence[int], summed: Sequence[int]) -> tuple[int, ...]:
  return tuple(n for i, n in enumerate(shape) if i not in summed)


def as_rows(value: np.ndarray, summed: Sequence[int]) -> np.ndarray:
  """Returns a variable as a matrix [outputs, inputs]; a view where possible."""
  outputs = [i for i in range(value.ndim) if i not in summed]
  inputs = math.prod(value.shape[i] for i in summed)
  return value.transpose(*outputs, *summed).reshape(-1, inputs)


def from_rows(
  rows: np.ndarray, shape: Sequence[int], summed: Sequence[int]
) -> np.ndarray:
  """Returns the C-contiguous variable that `as_rows` makes `rows` of."""
  order = [i for i in range(len(shape)) if i not in summed] + list(summed)
  value = rows.reshape([shape[i] for i in order])
  return np.ascontiguousarray(value.transpose(np.argsort(order)))


@dataclasses.dataclass(frozen=True)
class InputStats:
  """What calibration found out about the inputs of one matrix.

  Attributes:
    peak: The largest sizes, [inputs].
    mean_square: The mean squares, [inputs].
    hessian: The mean of the products of two inputs, [inputs, inputs] float32,
      which is half the Hessian of the outputs' mean squared error; None if it
      was not asked for.
  """

  peak: np.ndarray
  mean_square: np.ndarray
  hessian: np.ndarray | None


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
    scale: The float32 scales, as `scale_shape` has them.
    bits: Bits of a code.

  Raises:
    ValueError: The variable is not a matrix that can be quantized.
  """
  summed = summed_dims(name)
  if summed is None:
    raise ValueError(
      f'{name} is not a matrix that can be quantized; only the variables that'
      ' the table lists have codes and scales'
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
    # A NaN stays one: max() of the parts would drop it.
    steps = float(np.maximum(steps, (difference / scale[part]).max()))
    error = float(np.maximum(error, difference.max()))
    clipped += float((np.abs(exact) > (largest + 0.5) * scale[part]).sum())
  relative = (noise / signal) ** 0.5 if signal else 0.0
  return MatrixError(name, relative, steps, error, clipped / rows.size)
