"""Rounding that makes up for its own errors, by GPTQ's rule.

Inputs are rounded one after the other; the error of each is taken back by
changing the inputs that are still to come, as far as the two correlate. This
is Frantar et al., "GPTQ", arXiv:2210.17323, with the inputs of most energy
first.
"""

import numpy as np

# Inputs whose corrections are applied to the rest in one product.
_BLOCK = 128
# Share of the mean diagonal that is added to it, as in the paper.
_DAMPING = 0.01


def codes(
  rows: np.ndarray, scale: np.ndarray, largest: int, hessian: np.ndarray
) -> np.ndarray:
  """Codes [outputs, inputs] int8 of rows.

  Takes 3 arrays of the Hessian's size in float64, and inputs^2 * outputs
  multiplications.

  Args:
    rows: [outputs, inputs] float32.
    scale: [outputs].
    largest: code, with either sign.
    hessian: [inputs, inputs], see `input_stats.InputStats`.
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
  """The upper Cholesky factor of the inverse, float32."""
  damped = hessian.astype(np.float64)
  # An input that is always zero has no say; so small a model as to have no
  # input at all is rounded plainly.
  mean = float(np.diag(damped).mean()) or 1.0
  damped[np.diag_indices_from(damped)] += _DAMPING * mean
  return np.linalg.cholesky(np.linalg.inv(damped)).T.astype(np.float32)
