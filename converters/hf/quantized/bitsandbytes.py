"""Reads weights of bitsandbytes: NF4 and FP4 in blocks, and LLM.int8.

Values of 4 bits are indices into a table, `quant_map`, times the scale of their
block, `absmax`. The scales may be stored as codes of 8 bits themselves. An int8
matrix has codes with one scale per row, `SCB`, which is that of the code 127.
"""

import functools
import math

import msgspec
import numpy as np

from converters.hf.quantized import scheme
from saxml_ext.families import hf_entries

_STATES = tuple(f'.quant_state.bitsandbytes__{kind}' for kind in ('nf4', 'fp4'))
_MAX_STATE_BYTES = 4096
# The number of blocks to dequantize at once.
_BLOCKS = 1 << 14
# The types that may hold the codes of 4 bits, and their sizes in bytes.
_BYTES = {'uint8': 1, 'float16': 2, 'bfloat16': 2, 'float32': 4}


class _State(msgspec.Struct):
  """The description of a matrix of 4 bits, as far as it is needed."""

  blocksize: int
  shape: tuple[int, int]
  nested_blocksize: int = 1
  nested_offset: float = 0.0

  def __post_init__(self) -> None:
    sizes = (self.blocksize, self.nested_blocksize, *self.shape)
    if not all(0 < size < hf_entries.INT_LIMIT for size in sizes):
      raise ValueError('a size is out of range')


def from_settings(settings: hf_entries.Entries) -> scheme.Scheme:
  """Returns the scheme of `quantization_config`; see methods.read."""
  bits = 4 if settings.check('load_in_4bit', (False, True)) else 8
  return scheme.Scheme(f'bitsandbytes with {bits} bits', _find)


def _find(tensors: scheme.Tensors) -> dict[str, scheme.Weight]:
  weights = {
    f'{stem}.weight': _int8(tensors, name, stem)
    for name, stem in tensors.named('.SCB')
  }
  for suffix in _STATES:
    for name, weight in tensors.named(suffix):
      weights[weight] = _four_bits(tensors, name, weight)
  for name, _ in tensors.named('.weight'):
    if tensors.type_of(name) in ('int8', 'uint8') and name not in weights:
      state = f'{name}{_STATES[0]} or {name.removesuffix("weight")}SCB'
      tensors.check(state, name, ())
  return weights


def _int8(tensors: scheme.Tensors, scales: str, stem: str) -> scheme.Weight:
  codes, form = f'{stem}.weight', f'{stem}.weight_format'
  shape = tensors.check(codes, scales, ('int8',))
  if len(shape) != 2:
    raise tensors.error(codes, f'has the shape {list(shape)}')
  tensors.check(scales, codes, ('float32',), shape[:1])
  names = [codes, scales]
  if form in tensors.shapes:
    tensors.check(form, codes, ('uint8', 'int64'), (), (1,))
    if (number := tensors.read(form).item()) != 0:
      raise tensors.error(form, f'is {number}. Expected 0, which means rows')
    names.append(form)

  def read_scales() -> np.ndarray:
    return tensors.read(scales) / np.float32(127)

  def read() -> np.ndarray:
    return scheme.dequantize(tensors.read(codes), read_scales(), (1, shape[1]))

  return scheme.Weight(shape, tuple(names), read, read_scales)


def _four_bits(
  tensors: scheme.Tensors, name: str, weight: str
) -> scheme.Weight:
  """Checks the tensors of a matrix and returns it.

  Args:
    tensors: The tensors of the checkpoint.
    name: The tensor with the description, which is JSON.
    weight: The tensor with the codes, two per byte.
  """
  shape = tensors.check(name, weight, ('uint8',))
  data = b''
  if math.prod(shape) <= _MAX_STATE_BYTES:
    data = tensors.read(name).tobytes()
  try:
    state = msgspec.json.decode(data, type=_State)
  except ValueError as e:
    raise tensors.error(name, f'does not describe a matrix: {e}') from e
  count = math.prod(state.shape)
  stored = math.prod(tensors.check(weight, name, tuple(_BYTES)))
  if stored * _BYTES[tensors.type_of(weight)] != -(-count // 2):
    raise tensors.error(
      weight,
      f'is {tensors.type_of(weight)}{list(tensors.shapes[weight])}. Expected'
      f' {-(-count // 2)} bytes for a matrix {list(state.shape)}',
    )
  absmax, quant_map = f'{weight}.absmax', f'{weight}.quant_map'
  blocks = -(-count // state.blocksize)
  tensors.check(quant_map, weight, ('float32',), (16,))
  tensors.check(absmax, weight, ('float32', 'uint8'), (blocks,))
  names = [weight, name, absmax, quant_map]
  if tensors.type_of(absmax) == 'uint8':
    nested = -(-blocks // state.nested_blocksize)
    for part, size in (('nested_absmax', nested), ('nested_quant_map', 256)):
      names.append(f'{weight}.{part}')
      tensors.check(names[-1], weight, ('float32',), (size,))
  return scheme.Weight(
    state.shape,
    tuple(names),
    functools.partial(_read_four_bits, tensors, weight, state),
  )


def _read_four_bits(
  tensors: scheme.Tensors, weight: str, state: _State
) -> np.ndarray:
  def part(name: str) -> np.ndarray:
    return tensors.read(f'{weight}.{name}')

  absmax, table = part('absmax'), part('quant_map')
  if absmax.dtype == np.uint8:
    size = min(state.nested_blocksize, len(absmax))
    scales = np.repeat(part('nested_absmax'), size)
    absmax = part('nested_quant_map')[absmax] * scales[: len(absmax)]
    absmax += np.float32(state.nested_offset)
  codes = tensors.read(weight).reshape(-1).view(np.uint8)
  values = np.empty(2 * len(codes), np.float32)
  # The first value of a byte is in the upper half.
  values[0::2] = table[codes >> 4]
  values[1::2] = table[codes & 15]
  values = values[: math.prod(state.shape)]
  # A file may claim a block that is larger than the matrix.
  size = min(state.blocksize, len(values))
  for begin in range(0, len(absmax), _BLOCKS):
    scales = np.repeat(absmax[begin : begin + _BLOCKS], size)
    first = begin * size
    rows = values[first : first + len(scales)]
    rows *= scales[: len(rows)]
  return values.reshape(state.shape)
