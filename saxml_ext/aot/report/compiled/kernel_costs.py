"""What the engine's Pallas kernels cost, by the sizes of their operands.

`normalize_rows`, `quantize_rows` and `prefill_attention`
(`engine/kernels/tpu`) go through a grid whose steps all run the same code, so
their bundles are those of a step times the steps. Bundles of a step are counted
once, in code that libtpu makes of the kernels alone (`count_bundles.py`), and
kept beside this module. Decode attention reads what the slots have:
`attention_kernel.py` describes it.
"""

from collections.abc import Mapping
import dataclasses
import functools
import json
import math
import pathlib

from saxml_ext.aot.report.compiled import attention_kernel
from saxml_ext.aot.report.compiled import costs
from saxml_ext.aot.report.compiled import hlo_text

NORMALIZE = 'normalize_rows'
QUANTIZE = 'quantize_rows'
ATTEND = 'prefill_attention'
COUNTED = pathlib.Path(__file__).parent / 'kernel_bundles.json'

# Rows of a step of the kernels of rows.
ROWS = 128
# Tokens of a step of attention: a multiple of the first, at most the second.
_TILE = 128
_CHUNK = 512


@dataclasses.dataclass(frozen=True)
class Code:
  """VLIW instructions (bundles) of a kernel.

  Attributes:
    outside: of a call, whatever its grid.
    step: of each step of the grid; of decode attention, of a prompt's block.
    inner: of each trip of the loop within a step, 0 if it has none; of decode
      attention, of a suffix's block.
  """

  outside: int
  step: int
  inner: int


@dataclasses.dataclass(frozen=True)
class Work:
  """What a call of a kernel with a grid does.

  Attributes:
    key: which code runs: the kernel's name, and what its code depends on.
    steps: of the grid; of one with less than 128 rows their share.
    inner: trips of the loop within steps, of all steps together.
  """

  key: str
  steps: float
  inner: int


def describe(
  i: hlo_text.Instruction,
  within: hlo_text.Computation,
  traffic: float,
) -> costs.KernelCall | None:
  """A call of one of the engine's kernels; None if it is of another one.

  Args:
    i: a call of a Pallas kernel.
    within: its computation.
    traffic: bytes of its operands and results that lie in HBM.

  Raises:
    ValueError: its operands are not those that are known.
  """
  if attention_kernel.NAME in i.rest:
    blocks = attention_kernel.of(i, within)
    code = counted().get(blocks.key)
    return blocks.call(*dataclasses.astuple(code)) if code else blocks.call()
  work = work_of(i, within)
  if work is None:
    return None
  bundles = None
  code = counted().get(work.key)
  if code is not None:
    bundles = code.outside + work.steps * code.step + work.inner * code.inner
  return costs.KernelCall(hlo_text.kernel_name(i), traffic, 1, bundles)


def work_of(
  i: hlo_text.Instruction, within: hlo_text.Computation
) -> Work | None:
  """What a call does; None: it is of no kernel whose grid is known.

  Raises:
    ValueError: its operands are not those that are known.
  """
  name = hlo_text.kernel_name(i)
  operands = [within[x].arrays[0] for x in i.operands if x in within]
  if name in (NORMALIZE, QUANTIZE):
    x = _first(name, operands, 2)
    # Fewer rows make a shorter step, but the last of several is a whole one.
    steps = x.dims[0] / ROWS
    steps = math.ceil(steps) if steps > 1 else steps
    return Work(f'{name} {x.dtype}[{x.dims[1]}]', steps, 0)
  if name == ATTEND:
    qkv, keys = _first(name, operands, 3), _first(name, i.arrays[1:], 4)
    return _attention(qkv, keys)
  return None


def _first(
  name: str,
  arrays: tuple[hlo_text.Array, ...] | list[hlo_text.Array],
  dims: int,
) -> hlo_text.Array:
  """The first of a kernel's arrays, which has so many dims."""
  if not arrays or len(arrays[0].dims) != dims:
    raise ValueError(
      f'{name} has arrays of shapes {[a.dims for a in arrays]}, of which the'
      f' first should have {dims} dims. The kernel has changed: so must'
      ' saxml_ext/aot/report/compiled/kernel_costs.py.'
    )
  return arrays[0]


def _attention(qkv: hlo_text.Array, keys: hlo_text.Array) -> Work:
  """Of qkv [B, T, N * 3 * H] and keys [B, N, H, T].

  Each head of a prompt goes through the prompt's chunks, and in each of them
  through the chunks before it.
  """
  batch, heads, width, length = keys.dims
  if qkv.dims[:2] != (batch, length):
    raise ValueError(
      f'{ATTEND} has queries of shape {qkv.dims} and keys of shape'
      f' {keys.dims}, whose batch or length differ. The kernel has changed: so'
      ' must saxml_ext/aot/report/compiled/kernel_costs.py.'
    )
  sizes = range(_TILE, min(length, _CHUNK) + 1, _TILE)
  chunk = max(size for size in sizes if length % size == 0)
  chunks = length // chunk
  return Work(
    f'{ATTEND} {qkv.dtype}[{chunk},{width}] {keys.dtype}',
    batch * heads * chunks,
    batch * heads * math.comb(chunks, 2),
  )


@functools.cache
def counted() -> Mapping[str, Code]:
  """Bundles of the kernels by `Work.key`, as `count_bundles.py` found them."""
  record = json.loads(COUNTED.read_text('utf-8'))
  return {key: Code(**code) for key, code in record['kernels'].items()}
