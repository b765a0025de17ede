"""Rounds a matrix [outputs, inputs] to codes, with one scale per row.

The rounding is symmetric, in float32, and equals that of praxis. The scale is
bound / limit, or 1 for a row of zeros. The code is value / scale, rounded to
the nearest integer with ties to even. `limit` is the largest code, 127 for 8
bits. So a value and its negative have codes of the same size.
"""

import numpy as np

# The number of inputs whose corrections GPTQ applies to the rest in one
# product.
_BLOCK = 128
# The share of the mean diagonal that GPTQ adds to the diagonal, as in the
# paper.
_DAMPING = 0.01
# The number of rows to process at once. Temporary arrays stay small compared
# with a matrix.
_ROWS = 256
# The shares of a row's largest value that clipping tries as bounds.
_SHARES = np.linspace(0.5, 1.0, 51, dtype=np.float32)[:-1]


def limit(bits: int) -> int:
  """Returns the largest code of `bits` bits."""
  return (1 << (bits - 1)) - 1


def scales(rows: np.ndarray, largest: int) -> np.ndarray:
  """Returns the scales [outputs] float32 that clip no value.

  Args:
    rows: The matrix, [outputs, inputs] float32.
    largest: The code of the largest value.
  """
  bounds = np.empty(len(rows), np.float32)
  for part in _parts(rows):
    bounds[part] = np.abs(rows[part]).max(1, initial=0)
  return _scale(bounds, largest)


def clipped_scales(
  rows: np.ndarray, largest: int, weight: np.ndarray | None = None
) -> np.ndarray:
  """Returns the scales [outputs] float32 with the least squared error per row.

  The candidates are no clipping, and bounds down to half of the largest value.
  For equal errors the larger bound wins.

  Args:
    rows: The matrix, [outputs, inputs] float32.
    largest: The code of the bound.
    weight: The weights of the squared errors, [inputs]. With the mean squares
      of the inputs the result is the error of the outputs, as far as the inputs
      do not correlate.
  """
  result = scales(rows, largest)
  for part in _parts(rows):
    values = np.ascontiguousarray(rows[part])
    unclipped = result[part].copy()
    best = _error(values, unclipped, largest, weight)
    for share in _SHARES[::-1]:
      candidate = unclipped * share
      error = _error(values, candidate, largest, weight)
      better = error < best
      result[part] = np.where(better, candidate, result[part])
      best = np.minimum(error, best)
  return result


def codes(rows: np.ndarray, scale: np.ndarray, largest: int) -> np.ndarray:
  """Returns the codes [outputs, inputs] int8 of rows, clipped to +-largest."""
  result = np.empty(rows.shape, np.int8)
  for part in _parts(rows):
    result[part] = _rounded(rows[part], scale[part], largest)
  return result


def restored_codes(rows: np.ndarray, scale: np.ndarray) -> np.ndarray:
  """Returns the int8 codes of rows that are codes times scales [outputs].

  Unlike those of `codes`, the least is -128.
  """
  result = np.empty(rows.shape, np.int8)
  for part in _parts(rows):
    steps = np.rint(rows[part] / scale[part, None])
    result[part] = np.clip(steps, -128, 127)
  return result


def _rounded(values, scale, largest) -> np.ndarray:
  rounded = values / scale[:, None]
  np.rint(rounded, out=rounded)
  return np.clip(rounded, -largest, largest, out=rounded)


def _error(values, scale, largest, weight) -> np.ndarray:
  error = _rounded(values, scale, largest)
  error *= scale[:, None]
  error -= values
  np.square(error, out=error)
  return error.sum(1) if weight is None else error @ weight


def _scale(bounds: np.ndarray, largest: int) -> np.ndarray:
  scale = bounds / np.float32(largest)
  return np.where(scale == 0, np.float32(1), scale)


def _parts(rows: np.ndarray):
  for begin in range(0, len(rows), _ROWS):
    yield slice(begin, begin + _ROWS)


def gptq_codes(
  rows: np.ndarray, scale: np.ndarray, largest: int, hessian: np.ndarray
) -> np.ndarray:
  """Returns codes that compensate for their own errors, computed with GPTQ.

  Inputs are rounded one after the other. The error of each is compensated by
  changing the remaining inputs, as far as they correlate. The method is Frantar
  et al., "GPTQ", arXiv:2210.17323. Inputs with the most energy come first.

  The function needs 3 arrays of the Hessian's size in float64. It computes
  inputs^2 * outputs multiplications.

  Args:
    rows: The matrix, [outputs, inputs] float32.
    scale: The scales, [outputs].
    largest: The largest code, with either sign.
    hessian: The Hessian of `int8_matrix.InputStats`, [inputs, inputs].

  Returns:
    The codes, [outputs, inputs] int8.
  """
  order = np.argsort(-np.diag(hessian), kind='stable')
  factor = _factor(hessian[np.ix_(order, order)])
  left = rows[:, order].astype(np.float32)
  scale = scale[:, None]
  result = np.empty(left.shape, np.int8)
  for begin in range(0, len(order), _BLOCK):
    end = min(begin + _BLOCK, len(order))
    error = np.empty((len(left), end - begin), np.float32)
    for i in range(begin, end):
      value = left[:, i : i + 1]
      rounded = np.clip(np.rint(value / scale), -largest, largest)
      result[:, order[i]] = rounded[:, 0]
      part = (value - rounded * scale) / factor[i, i]
      error[:, i - begin] = part[:, 0]
      left[:, i + 1 : end] -= part * factor[i, i + 1 : end]
    left[:, end:] -= error @ factor[begin:end, end:]
  return result


def _factor(hessian: np.ndarray) -> np.ndarray:
  """Returns the upper Cholesky factor of the inverse Hessian, float32."""
  damped = hessian.astype(np.float64)
  # An input that is always zero has no effect. If all inputs are zero, the
  # matrix is rounded without compensation.
  mean = float(np.diag(damped).mean()) or 1.0
  damped[np.diag_indices_from(damped)] += _DAMPING * mean
  return np.linalg.cholesky(np.linalg.inv(damped)).T.astype(np.float32)
