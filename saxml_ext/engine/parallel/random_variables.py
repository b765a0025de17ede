"""Generates random variables of a model, each number on demand.

They replace a checkpoint when only the sizes of a model matter. Each number
depends only on the seed, the name of its variable and its position there. So
any process can generate any part alone. The whole model is the same for every
split.
"""

from collections.abc import Iterator, Mapping, Sequence
import functools
import hashlib
import math
import operator

import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import variables as variables_lib
from saxml_ext.engine.numerics import quant

_Slices = tuple[slice | int, ...] | slice | int
_LARGEST_CODE = 127


class RandomVariables(Mapping[str, np.ndarray]):
  """Random variables under the names of a checkpoint, separate for each layer.

  They are distributed as praxis initializes them. Matrices are uniform within
  the limits of Glorot and Bengio
  (https://proceedings.mlr.press/v9/glorot10a.html). The embedding is normal
  with a deviation of 1 / sqrt(width). Norms, biases and scales have no effect
  yet.

  Attributes:
    specs: The shape and dtype of each variable.
  """

  def __init__(
    self,
    config: config_lib.ModelConfig,
    seed: int = 0,
    quantization: str | None = None,
  ):
    """Creates the specs; variables are generated when they are read.

    Args:
      config: The configuration of the model, which gives the sizes.
      seed: The seed. Different seeds make different models.
      quantization: One of `quant.NOT_INT8` for variables in float32. Otherwise
        the matrices of layers are int8 and have scales, rounded from the same
        float32 numbers.

    Raises:
      ValueError: The quantization is unknown.
    """
    if quantization not in quant.QUANTIZATIONS:
      raise ValueError(
        f'quantization is {quantization!r}, not one of {quant.QUANTIZATIONS}.'
      )
    self._seed = seed
    self._width = config.model_dim
    self._direct_scale = config.ln_direct_scale
    self._rows: dict[str, variables_lib.Variable] = {}
    self.specs: dict[str, jax.ShapeDtypeStruct] = {}
    table = variables_lib.table_of(config.architecture)
    for row, layer in table.entries(config):
      name, shape = row.path(layer), row.shape(config)
      # int4 matrices are stored in float, and quantized when they are loaded.
      stored = quantization not in quant.NOT_INT8
      coded = stored and row.is_matrix and row.per_layer
      self._add(name, row, shape, np.int8 if coded else np.float32)
      if coded:
        outputs = np.delete(shape, row.contracted_dims).tolist()
        self._add(name + variables_lib.SCALE_SUFFIX, row, outputs, np.float32)

  def __getitem__(self, name: str) -> np.ndarray:
    return self.read_part(name, ())

  def __iter__(self) -> Iterator[str]:
    return iter(self.specs)

  def __len__(self) -> int:
    return len(self.specs)

  def read_part(self, name: str, slices: _Slices) -> np.ndarray:
    """Generates a part of one variable, for example `np.s_[10, :, 0:5]`.

    Raises:
      KeyError: There is no such variable.
      ValueError: A slice has a step other than 1.
    """
    spec, row = self.specs[name], self._rows[name]
    starts, sizes, kept = _bounds(slices, spec.shape)
    if name.endswith(variables_lib.SCALE_SUFFIX):
      matrix = self.specs[name.removesuffix(variables_lib.SCALE_SUFFIX)]
      return np.full(kept, _limit(matrix.shape) / _LARGEST_CODE, spec.dtype)
    if row.field != 'embedding' and not row.is_matrix:
      value = float(row.is_norm_scale and self._direct_scale)
      return np.full(kept, value, spec.dtype)
    strides = tuple(math.prod(spec.shape[i + 1 :]) for i in range(len(sizes)))
    first = sum(map(operator.mul, starts, strides)) % 2**32
    if row.field == 'embedding':
      kind, spread = 'normal', self._width**-0.5
    else:
      kind, spread = 'uniform', _limit(spec.shape)
    if spec.dtype == np.int8:
      kind = 'codes'
    with jax.default_device(jax.local_devices(backend='cpu')[0]):
      made = _make(
        sizes, strides, kind, self._key(name), np.uint32(first), spread
      )
    return np.asarray(made).reshape(kept)

  def _add(
    self,
    name: str,
    row: variables_lib.Variable,
    shape: Sequence[int],
    dtype: type[np.generic],
  ) -> None:
    self._rows[name] = row
    self.specs[name] = jax.ShapeDtypeStruct(tuple(shape), dtype)

  def _key(self, name: str) -> np.ndarray:
    """Returns two 32-bit words derived from the seed and a variable's name."""
    text = f'{self._seed} {name}'.encode()
    return np.frombuffer(hashlib.sha256(text).digest()[:8], np.uint32)


def _bounds(
  slices: _Slices, shape: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
  """Returns a part's start, its size, and its size without integer indices."""
  given = slices if isinstance(slices, tuple) else (slices,)
  given = (*given, *[slice(None)] * (len(shape) - len(given)))
  starts, sizes, kept = [], [], []
  for part, size in zip(given, shape, strict=True):
    if isinstance(part, slice):
      start, stop, step = part.indices(size)
      if step != 1:
        raise ValueError(f'{part} has step {step}, but must have step 1.')
      kept.append(max(0, stop - start))
    else:
      start = range(size)[part]
      stop = start + 1
    starts.append(start)
    sizes.append(max(0, stop - start))
  return tuple(starts), tuple(sizes), tuple(kept)


def _limit(shape: tuple[int, ...]) -> float:
  """Returns the limit of a matrix's values, with fans counted as in praxis."""
  *rest, fan_in, fan_out = shape
  return math.sqrt(6 / ((fan_in + fan_out) * math.prod(rest)))


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _make(
  sizes: tuple[int, ...],
  strides: tuple[int, ...],
  kind: str,
  key: jax.Array,
  first: jax.Array,
  spread: float,
) -> jax.Array:
  """Returns a part of a variable.

  Args:
    sizes: The shape of the part. Static, like `strides` and `kind`.
    strides: The strides of the whole variable, in numbers.
    kind: The distribution: "uniform" within the spread, "normal" with the
      spread as deviation, or "codes" for uniform int8.
    key: The key of the variable, [2] uint32.
    first: The position of the first number, [] uint32. Positions are counted
      modulo 2**32.
    spread: The spread of the numbers.
  """
  position = first
  for dim, stride in enumerate(strides):
    index = jax.lax.broadcasted_iota(jnp.uint32, sizes, dim)
    position = position + index * np.uint32(stride % 2**32)
  bits = _mixed(_mixed(position ^ key[0]) + key[1])
  # The numbers are multiples of 2**-22, with the same distance from -1 and 1.
  uniform = ((bits >> 9).astype(jnp.float32) + 0.5) * 2.0**-22 - 1
  if kind == 'codes':
    return jnp.rint(uniform * _LARGEST_CODE).astype(jnp.int8)
  if kind == 'normal':
    uniform = np.float32(math.sqrt(2)) * jax.lax.erf_inv(uniform)
  return uniform * jnp.float32(spread)


def _mixed(x: jax.Array) -> jax.Array:
  """Returns a bijection of 32 bits in which each bit depends on all bits.

  The constants are from https://github.com/skeeto/hash-prospector, which
  searches for constants with the least bias. JAX's threefry takes 20 times as
  long.
  """
  x = (x ^ (x >> 16)) * np.uint32(0x21F0AAAD)
  x = (x ^ (x >> 15)) * np.uint32(0xD35A2D97)
  return x ^ (x >> 15)
