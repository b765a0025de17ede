"""Reads weights of GPTQ and AWQ: codes of a few bits, with scales per group.

Both store the transposed matrix, `qweight` [inputs, outputs], with `scales` and
`qzeros` [groups, outputs]. GPTQ packs the codes along inputs, and AWQ packs
them along outputs in an order of its own.
"""

from collections.abc import Callable
import functools

import numpy as np

from converters.hf.quantized import scheme
from saxml_ext.families import hf_entries

# The places of the codes 0 to 7 in a word of AWQ.
_AWQ_ORDER = [0, 4, 1, 5, 2, 6, 3, 7]
_AWQ_BITS = 4


def gptq_from_settings(settings: hf_entries.Entries) -> scheme.Scheme:
  """Returns the scheme of GPTQ; see methods.read."""
  bits = settings.check('bits', (4, 2, 8))
  settings.check('pack_dtype', ('int32',))
  settings.check('is_marlin_format', (False,))
  formats = [
    settings.check(key, ('gptq', 'gptq_v2'))
    for key in ('checkpoint_format', 'format')
  ]
  read = functools.partial(
    _read_gptq,
    bits=bits,
    # The first version stores the code of zero minus 1.
    offset=0 if 'gptq_v2' in formats else 1,
  )
  find = functools.partial(
    _find,
    read=read,
    size=_group_size(settings),
    packing=(32 // bits, 1),
    bits=bits,
    has_order=settings.check('desc_act', (False, True)),
  )
  return scheme.Scheme(f'GPTQ with {bits} bits', find)


def awq_from_settings(settings: hf_entries.Entries) -> scheme.Scheme:
  """Returns the scheme of AWQ; see methods.read."""
  settings.check('bits', (_AWQ_BITS,))
  settings.check('zero_point', (True,))
  settings.check('version', ('gemm', 'GEMM'))
  settings.check('backend', ('autoawq',))
  find = functools.partial(
    _find,
    read=_read_awq,
    size=_group_size(settings),
    packing=(1, 32 // _AWQ_BITS),
    bits=_AWQ_BITS,
    has_order=False,
  )
  return scheme.Scheme(f'AWQ with {_AWQ_BITS} bits', find)


def _group_size(settings: hf_entries.Entries) -> int:
  """Returns the number of inputs of a group; 0 means all."""
  if settings.get('group_size') == -1:
    return 0
  return settings.integer('group_size', 128)


def _find(
  tensors: scheme.Tensors,
  read: Callable[..., np.ndarray],
  size: int,
  packing: tuple[int, int],
  bits: int,
  has_order: bool,
) -> dict[str, scheme.Weight]:
  """Checks and returns all matrices.

  Args:
    tensors: The tensors of the checkpoint.
    read: A function that returns a matrix.
    size: The number of inputs of a group; 0 means all.
    packing: The numbers of inputs and outputs in one word of `qweight`.
    bits: The number of bits of a code.
    has_order: True if every matrix has the group of each input, `g_idx`.
  """
  weights = {}
  for codes, stem in tensors.named('.qweight'):
    stored = tensors.check(codes, codes, ('int32',))
    if len(stored) != 2 or 0 in stored:
      raise tensors.error(codes, f'has the shape {list(stored)}')
    inputs, outputs = (n * k for n, k in zip(stored, packing, strict=True))
    block = 1, size or inputs
    groups = -(-inputs // block[1])
    names = [f'{stem}.{part}' for part in ('qweight', 'scales', 'qzeros')]
    tensors.check(names[1], codes, scheme.FLOATS, (groups, outputs))
    words = scheme.num_words(outputs, bits)
    tensors.check(names[2], codes, ('int32',), (groups, words))
    order = f'{stem}.g_idx'
    if has_order or order in tensors.shapes:
      tensors.check(order, codes, scheme.INDICES, (inputs,))
      names.append(order)
    weights[f'{stem}.weight'] = scheme.Weight(
      (outputs, inputs),
      tuple(names),
      functools.partial(read, tensors, stem, block),
    )
  return weights


def _read_gptq(
  tensors: scheme.Tensors,
  stem: str,
  block: tuple[int, int],
  bits: int,
  offset: int,
) -> np.ndarray:
  codes = scheme.unpack(tensors.read(f'{stem}.qweight').T, bits)
  scales = tensors.read(f'{stem}.scales').T
  zeros = scheme.unpack(tensors.read(f'{stem}.qzeros'), bits).T[: len(codes)]
  # An offset of the largest code wraps, as it did when the file was written.
  zeros = (zeros + np.uint8(offset)) & np.uint8((1 << bits) - 1)
  groups = scheme.read_groups(tensors, f'{stem}.g_idx', scales.shape[1])
  return scheme.dequantize(codes, scales, block, zeros, groups)


def _read_awq(
  tensors: scheme.Tensors, stem: str, block: tuple[int, int]
) -> np.ndarray:
  codes, zeros = (
    scheme.unpack(tensors.read(f'{stem}.{part}'), _AWQ_BITS).reshape(
      -1, 32 // _AWQ_BITS
    )[:, _AWQ_ORDER]
    for part in ('qweight', 'qzeros')
  )
  scales = tensors.read(f'{stem}.scales').T
  outputs = len(scales)
  return scheme.dequantize(
    codes.reshape(-1, outputs).T, scales, block, zeros.reshape(-1, outputs).T
  )
