"""Lists the variables that become int8, and the dims that products sum over.

The engine's table of variables tells:

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
import math

import numpy as np

from saxml_ext.engine import architecture
from saxml_ext.engine import variables

# What GPT-J has, and all that other families of dense decoders may have beside.
TABLE = variables.table_of(
  architecture.Architecture(
    residual=architecture.PARALLEL, biases=architecture.BIASES
  )
)


def summed_dims(name: str, softmax: bool = True) -> tuple[int, ...] | None:
  """Dims that products with a variable sum over; None if it stays in float.

  Args:
    name: of the variable.
    softmax: whether the head's matrix is one to quantize.
  """
  row = TABLE.named(name)
  if row is None or not row.is_matrix or (row.field == 'head' and not softmax):
    return None
  return row.contracted_dims


def inputs_of(name: str) -> str | None:
  """What a layer's matrix is multiplied with; None for the head's.

  Returns:
    A field of `engine.model.Taps`.
  """
  row = TABLE.named(name)
  return row.inputs if row else None


def scale_name(name: str) -> str:
  """The name of the scale of variable `name`."""
  return name + variables.SCALE_SUFFIX


def scale_shape(shape: Sequence[int], summed: Sequence[int]) -> tuple[int, ...]:
  return tuple(n for i, n in enumerate(shape) if i not in summed)


def as_rows(value: np.ndarray, summed: Sequence[int]) -> np.ndarray:
  """A variable as a matrix [outputs, inputs]; a view where it can be one."""
  outputs = [i for i in range(value.ndim) if i not in summed]
  inputs = math.prod(value.shape[i] for i in summed)
  return value.transpose(*outputs, *summed).reshape(-1, inputs)


def from_rows(
  rows: np.ndarray, shape: Sequence[int], summed: Sequence[int]
) -> np.ndarray:
  """The C-contiguous variable of `shape` that `as_rows` makes `rows` of."""
  order = [i for i in range(len(shape)) if i not in summed] + list(summed)
  value = rows.reshape([shape[i] for i in order])
  return np.ascontiguousarray(value.transpose(np.argsort(order)))
