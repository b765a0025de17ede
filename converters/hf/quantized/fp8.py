"""Reads weights in FP8 (E4M3) with scales per tensor, row or block.

DeepSeek, Qwen3 and transformers write `weight_scale_inv`, vLLM's AutoFP8 and
FBGEMM write `weight_scale`. In spite of its name, `weight_scale_inv` is a
factor, too. Scales of activations are ignored, because activations are not
rounded to FP8.
"""

import functools

from converters.hf.quantized import scheme
from saxml_ext.families import hf_entries

TYPE = 'float8_e4m3fn'
_SUFFIXES = ('_scale_inv', '_scale')


def from_settings(settings: hf_entries.Entries) -> scheme.Scheme:
  """Returns the scheme of `quantization_config`; see methods.read."""
  settings.check('fmt', ('e4m3',))
  block = settings.get('weight_block_size')
  if block is not None:
    block = block_size(settings, 'weight_block_size')
  return scheme.Scheme('FP8', functools.partial(_find, block=block))


def block_size(settings: hf_entries.Entries, key: str) -> tuple[int, int]:
  """Returns an entry with the rows and columns of a block: [2, 4] or "2x4"."""
  size = settings.get(key)
  if isinstance(size, str):
    size = [int(n) for n in size.split('x') if n.isdecimal() and len(n) < 9]
  if (
    not isinstance(size, list)
    or len(size) != 2
    or any(type(n) is not int or not 0 < n <= 1 << 20 for n in size)
  ):
    raise settings.error(key, 'the numbers of rows and columns of a block')
  return size[0], size[1]


def _find(
  tensors: scheme.Tensors, block: tuple[int, int] | None
) -> dict[str, scheme.Weight]:
  weights = {}
  for name, shape in tensors.shapes.items():
    if tensors.type_of(name) != TYPE or len(shape) != 2:
      continue
    scale = next(
      (name + s for s in _SUFFIXES if name + s in tensors.shapes),
      name + _SUFFIXES[0 if block else 1],
    )
    # One scale per tensor or per row, unless there are blocks.
    sizes = [block] if block else [shape, (1, shape[1])]
    forms = {form: n for n in sizes for form in scheme.scale_shapes(shape, n)}
    form = tensors.check(scale, name, scheme.FLOATS, *forms)
    weights[name] = scheme.Weight(
      shape,
      (name, scale),
      functools.partial(_read, tensors, name, scale, forms[form]),
    )
  return weights


def _read(tensors, name, scale, block):
  return scheme.dequantize(tensors.read(name), tensors.read(scale), block)
