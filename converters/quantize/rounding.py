"""Rounding a matrix [outputs, inputs] to codes, with a scale for each row.

Symmetric, in float32 and as praxis rounds: scale = bound / limit, and 1 for a
row of zeros; code = value / scale to the nearest, ties to even. `limit` is the
largest code, 127 for 8 bits, so that a value and its negative have one size.
"""

import numpy as np

# Inputs whose corrections GPTQ applies to the rest in one product.
_BLOCK = 128
# Share of the mean diagonal that GPTQ adds to it, as in the paper.
_DAMPING = 0.01
# Rows handled together: their temporaries are to stay small beside a matrix.
_ROWS = 256
# Shares of a row's largest value that clipping tries as its bound.
_SHARES = np.linspace(0.5, 1.0, 51, dtype=np.float32)[:-1]


def limit(bits: int) -> int:
  """The largest code of `bits` bits."""
  return (1 << (bits - 1)) - 1


def scales(rows: np.ndarray, largest: int) -> np.ndarray:
  """Scales [outputs] float32 with which nothing is clipped.

  Args:
    rows: [outputs, inputs] float32.
    largest: code of the largest value.
  """
  bounds = np.empty(len(rows), np.float32)
  for part in _parts(rows):
    bounds[part] = np.abs(rows[part]).max(1, initial=0)
  return _scale(bounds, largest)


def clipped_scales(
  rows: np.ndarray, largest: int, weight: np.ndarray | None = None
) -> np.ndarray:
  """Scales [outputs] float32 with the least squared error of their rows.

  The best of no clipping and of bounds down to half of the largest value. On
  equal errors the larger bound wins.

  Args:
    rows: [outputs, inputs] float32.
    largest: code that the bound gets.
    weight: [inputs], of the squared errors: the mean squares of the inputs make
      it the error of the outputs, as far as inputs do not correlate.
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
  """Codes [outputs, inputs] int8 of rows, clipped to +-largest."""
  result = np.empty(rows.shape, np.int8)
  for part in _parts(rows):
    result[part] = _rounded(rows[part], scale[part], largest)
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
  """Returns codes that make up for their own errors, by GPTQ's rule.

  Inputs are rounded one after the other; the error of each is taken back by
  changing the inputs that are still to come, as far as the two correlate. This
  is Frantar et al., "GPTQ", arXiv:2210.17323, with the inputs of most energy
  first.

  Takes 3 arrays of the Hessian's size in float64, and inputs^2 * outputs
  multiplications.

  Args:
    rows: The matrix, [outputs, inputs] float32.
    scale: The scales, [outputs].
    largest: The largest code, with either sign.
    hessian: as in `int8_matrix.InputStats`, [inputs, inputs].

  Returns:
    Codes [outputs, inputs] int8.
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
  """Returns the upper Cholesky factor of the inverse, float32."""
  damped = hessian.astype(np.float64)
  # An input that is always zero has no say; so small a model as to have no
  # input at all is rounded plainly.
  mean = float(np.diag(damped).mean()) or 1.0
  damped[np.diag_indices_from(damped)] += _DAMPING * mean
  return np.linalg.cholesky(np.linalg.inv(damped)).T.astype(np.float32)
