"""Describes an einsum as a product of two matrices."""

import math
from typing import NamedTuple

import jax


class MatrixForm(NamedTuple):
  """The dimensions of an einsum that is a product of two matrices.

  Attributes:
    x: The dimensions of x.
    weight: The dimensions of w.
    out: The dimensions of the result.
    contracted: The dimensions of w that are contracted, in its order.
    outputs: The other dimensions of w, in its order.
    rows: The dimensions of x that are not contracted.
    row_shape: The sizes of `rows`.
  """

  x: str
  weight: str
  out: str
  contracted: str
  outputs: str
  rows: str
  row_shape: tuple[int, ...]

  def matrix(self, x: jax.Array) -> jax.Array:
    """Returns x as a matrix [rows, contracted]."""
    order = [self.x.index(d) for d in self.rows + self.contracted]
    return x.transpose(order).reshape(math.prod(self.row_shape), -1)

  def result(
    self, product: jax.Array, output_shape: tuple[int, ...]
  ) -> jax.Array:
    """Returns a product [rows, outputs] with the dimensions of the result."""
    have = self.rows + self.outputs
    product = product.reshape(self.row_shape + output_shape)
    return product.transpose([have.index(d) for d in self.out])


def from_einsum(spec: str, x: jax.Array) -> MatrixForm:
  """Returns the form of an einsum of activations `x`."""
  x_dims, w_dims, out_dims = dims(spec, x.ndim)
  contracted = ''.join(d for d in w_dims if d not in out_dims)
  rows = ''.join(d for d in x_dims if d not in contracted)
  return MatrixForm(
    x_dims,
    w_dims,
    out_dims,
    contracted,
    ''.join(d for d in w_dims if d in out_dims),
    rows,
    tuple(x.shape[x_dims.index(d)] for d in rows),
  )


def dims(spec: str, x_rank: int) -> tuple[str, str, str]:
  """Returns the names of the dimensions of x, w and the result.

  The names replace the "..." of x.
  """
  terms, result = spec.split('->')
  x, w = terms.split(',')
  spelled = ''.join(chr(ord('A') + i) for i in range(x_rank - len(x) + 3))
  return x.replace('...', spelled), w, result.replace('...', spelled)
