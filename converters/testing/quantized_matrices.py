"""Makes quantized matrices of all methods.

The codes and scales are random. Beside them, this module computes the matrices
that they stand for, one formula per method. Each was compared by hand with the
float32 matrix that the maker's library reads from the same tensors:
transformers 5 (`fp8`, `fbgemm_fp8`), compressed-tensors 0.20.1 (0.10.2 for
`compressed_packed_order`), gptqmodel 7.7.0, autoawq 0.2.9 and bitsandbytes
0.50.2. All were equal, except that bitsandbytes' LLM.int8 multiplies by 1 / 127
last, which changes the last bit.
"""

from collections.abc import Callable
import json
from typing import Any, NamedTuple, TypeAlias

import ml_dtypes
import numpy as np

Tensors: TypeAlias = dict[str, np.ndarray]
_FP8 = np.dtype(ml_dtypes.float8_e4m3fn)
# The values of the codes, from bitsandbytes.functional.get_4bit_type.
_TABLES = {
  'nf4': (
    (-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453)
    + (-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0)
    + (0.07958029955625534, 0.16093020141124725, 0.24611230194568634)
    + (0.33791524171829224, 0.44070982933044434, 0.5626170039176941)
    + (0.7229568362236023, 1.0)
  ),
  'fp4': (
    (0.0, 0.0052083334885537624, 0.6666666865348816, 1.0, 0.3333333432674408)
    + (0.5, 0.1666666716337204, 0.25, -0.0, -0.0052083334885537624)
    + (-0.6666666865348816, -1.0, -0.3333333432674408, -0.5)
    + (-0.1666666716337204, -0.25)
  ),
}
_AWQ_COLUMNS = [0, 2, 4, 6, 1, 3, 5, 7]


class Matrix(NamedTuple):
  """A quantized matrix.

  Attributes:
    tensors: The tensors by the rest of the name, such as `weight_scale`.
    values: The matrix that they stand for, in float32.
  """

  tensors: Tensors
  values: np.ndarray


Writer: TypeAlias = Callable[[np.random.Generator, tuple[int, int]], Matrix]


def pack(codes: np.ndarray, bits: int) -> np.ndarray:
  """Returns rows of codes, [rows, codes], in words of 32 bits."""
  per_word = 32 // bits
  codes = np.pad(codes, ((0, 0), (0, -codes.shape[1] % per_word)))
  words = np.zeros((len(codes), codes.shape[1] // per_word), np.uint32)
  for i in range(per_word):
    words |= codes[:, i::per_word].astype(np.uint32) << np.uint32(bits * i)
  return words.view(np.int32)


def _spread(x: np.ndarray, block: tuple[int, int], shape) -> np.ndarray:
  """Returns the value of each element's block."""
  x = x.astype(np.float32).repeat(block[0], 0).repeat(block[1], 1)
  return x[: shape[0], : shape[1]]


def _scales(rng: np.random.Generator, shape, dtype=np.float32) -> np.ndarray:
  return rng.uniform(0.001, 0.01, shape).astype(dtype)


def plain(
  kind: str, block: tuple[int, int], name: str = 'weight_scale', **options: Any
) -> Writer:
  """Returns a writer of codes that fill bytes.

  Args:
    kind: 'fp8', 'int' or 'asymmetric'.
    block: The rows and columns that share a scale; 0 means all.
    name: The rest of the name of the scales.
    **options: `scale_shape`, the shape of the scales in the file; `extra`,
      further tensors.
  """

  def write(rng: np.random.Generator, shape: tuple[int, int]) -> Matrix:
    size = block[0] or shape[0], block[1] or shape[1]
    grid = tuple(-(-n // k) for n, k in zip(shape, size, strict=True))
    if kind == 'fp8':
      codes = (rng.standard_normal(shape) * 40).astype(_FP8)
    else:
      codes = rng.integers(-128, 128, shape).astype(np.int8)
    scale = _scales(rng, grid)
    stored = scale.reshape(options.get('scale_shape', grid))
    tensors = {'weight': codes, name: stored, **options.get('extra', {})}
    values = codes.astype(np.float32)
    if kind == 'asymmetric':
      zero = rng.integers(-128, 128, grid).astype(np.int8)
      tensors['weight_zero_point'] = zero
      values = values - _spread(zero, size, shape)
    return Matrix(tensors, values * _spread(scale, size, shape))

  return write


def packed(
  bits: int, size: int, has_zeros: bool = False, has_order: bool = False
) -> Writer:
  """Returns a writer of `pack-quantized`; a size of 0 is that of a row."""

  def write(rng: np.random.Generator, shape: tuple[int, int]) -> Matrix:
    groups = shape[1] // size if size else 1
    grid = shape[0], groups
    codes = rng.integers(0, 1 << bits, shape)
    zero = np.full(grid, 1 << (bits - 1))
    scale = _scales(rng, grid)
    group = np.arange(shape[1]) // (size or shape[1])
    tensors = {
      'weight_packed': pack(codes, bits),
      'weight_scale': scale,
      'weight_shape': np.array(shape, np.int64),
    }
    if has_zeros:
      zero = rng.integers(0, 1 << bits, grid)
      tensors['weight_zero_point'] = np.ascontiguousarray(pack(zero.T, bits).T)
    if has_order:
      group = rng.permutation(group)
      tensors['weight_g_idx'] = group.astype(np.int32)
    values = (codes - zero[:, group]).astype(np.float32)
    return Matrix(tensors, values * scale[:, group])

  return write


def gptq(bits: int, size: int, offset: int, has_order: bool) -> Writer:
  """Returns a writer of GPTQ; a size of 0 is that of a row."""

  def write(rng: np.random.Generator, shape: tuple[int, int]) -> Matrix:
    outputs, inputs = shape
    groups = inputs // size if size else 1
    codes = rng.integers(0, 1 << bits, (inputs, outputs))
    zero = rng.integers(offset, 1 << bits, (groups, outputs))
    scale = _scales(rng, (groups, outputs), np.float16)
    group = np.arange(inputs) // (size or inputs)
    if has_order:
      group = rng.permutation(group)
    tensors = {
      'qweight': np.ascontiguousarray(pack(codes.T, bits).T),
      'qzeros': pack(zero - offset, bits),
      'scales': scale,
      'g_idx': group.astype(np.int32),
    }
    values = (codes - zero[group]).astype(np.float32)
    values *= scale.astype(np.float32)[group]
    return Matrix(tensors, np.ascontiguousarray(values.T))

  return write


def awq(rng: np.random.Generator, shape: tuple[int, int]) -> Matrix:
  """Returns a matrix of AWQ in groups of 64."""
  outputs, inputs = shape
  groups = inputs // 64
  codes = rng.integers(0, 16, (inputs, outputs))
  zero = rng.integers(0, 16, (groups, outputs))
  scale = _scales(rng, (groups, outputs), np.float16)
  tensors = {'scales': scale}
  for name, x in (('qweight', codes), ('qzeros', zero)):
    ordered = x.reshape(-1, outputs // 8, 8)[:, :, _AWQ_COLUMNS]
    tensors[name] = pack(ordered.reshape(x.shape), 4)
  values = (codes - zero.repeat(64, 0)).astype(np.float32)
  values *= scale.astype(np.float32).repeat(64, 0)
  return Matrix(tensors, np.ascontiguousarray(values.T))


def four_bits(kind: str, is_nested: bool) -> Writer:
  """Returns a writer of bitsandbytes' matrices of 4 bits in blocks of 64."""

  def write(rng: np.random.Generator, shape: tuple[int, int]) -> Matrix:
    count = shape[0] * shape[1]
    blocks = -(-count // 64)
    codes = rng.integers(0, 16, count + count % 2).astype(np.uint8)
    table = np.array(_TABLES[kind], np.float32)
    state = {
      'quant_type': kind,
      'blocksize': 64,
      'dtype': 'float32',
      'shape': shape,
    }
    absmax = _scales(rng, blocks)
    tensors = {
      'weight': (codes[0::2] << 4 | codes[1::2])[:, np.newaxis],
      'weight.absmax': absmax,
      'weight.quant_map': table,
    }
    if is_nested:
      nested = np.sort(rng.uniform(-1, 1, 256)).astype(np.float32)
      outer = _scales(rng, -(-blocks // 256))
      stored = rng.integers(0, 256, blocks).astype(np.uint8)
      state |= {
        'nested_blocksize': 256,
        'nested_dtype': 'float32',
        'nested_offset': 0.0625,
      }
      tensors |= {
        'weight.absmax': stored,
        'weight.nested_absmax': outer,
        'weight.nested_quant_map': nested,
      }
      absmax = nested[stored] * outer.repeat(256)[:blocks] + np.float32(0.0625)
    data = json.dumps(state).encode()
    key = f'weight.quant_state.bitsandbytes__{kind}'
    tensors[key] = np.frombuffer(data, np.uint8)
    values = table[codes[:count]] * absmax.repeat(64)[:count]
    return Matrix(tensors, values.reshape(shape))

  return write


def llm_int8(rng: np.random.Generator, shape: tuple[int, int]) -> Matrix:
  """Returns a matrix of bitsandbytes' LLM.int8."""
  codes = rng.integers(-127, 128, shape).astype(np.int8)
  scale = rng.uniform(0.1, 1, shape[0]).astype(np.float32)
  tensors = {
    'weight': codes,
    'SCB': scale,
    'weight_format': np.array(0, np.uint8),
  }
  return Matrix(tensors, codes * (scale / np.float32(127))[:, np.newaxis])
