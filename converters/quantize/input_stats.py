"""What calibration tells of the inputs of a matrix."""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class InputStats:
  """Of the inputs of one matrix.

  peak [inputs]: largest size; mean_square [inputs]; hessian [inputs, inputs]
  float32: mean of the products of two inputs, which is half the Hessian of the
  outputs' mean squared error; None if it was not asked for.
  """

  peak: np.ndarray
  mean_square: np.ndarray
  hessian: np.ndarray | None
