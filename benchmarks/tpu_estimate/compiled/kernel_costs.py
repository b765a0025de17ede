"""Computes the cost of the engine's Pallas kernels from their operand sizes.

`normalize_rows`, `normalize_rms_rows`, `quantize_rows` and `prefill_attention`
(`engine/kernels/tpu`) process a grid. All steps of the grid run the same code,
so the bundles of a step are multiplied by the number of steps.

Decode attention, `attend_beams`, processes a list of blocks of keys. The length
of the list depends on the requests. The shapes of the operands determine the
bytes and the number of keys of a block. Each iteration of the loop runs a
common part, and the part for a prompt's block or for a suffix's block.

The bundles were counted once, in code that libtpu compiles from the kernels
alone (`count_bundles.py`). They are stored next to this module.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import functools
import math
import pathlib

from benchmarks.tpu_estimate.compiled import costs
from benchmarks.tpu_estimate.compiled import hlo_text
from saxml_ext.common import files

ATTEND = 'prefill_attention'
ATTEND_BEAMS = 'attend_beams'
COUNTED = pathlib.Path(__file__).parent / 'kernel_bundles.json'

# The kernels that process rows, and their rows per step.
_OF_ROWS = ('normalize_rows', 'normalize_rms_rows', 'quantize_rows')
ROWS = 128
# The tokens per step of attention: a multiple of _TILE, and at most _CHUNK.
_TILE = 128
_CHUNK = 512
# The keys that decode attention reads together, see `block_list.CHUNK`.
_KEYS = 128
# The limits on keys and bytes of a prompt's block, as in `decode_attention.py`.
_BLOCK_KEYS = 384
_BLOCK_BYTES = 1 << 20

_MODULE = 'benchmarks/tpu_estimate/compiled/kernel_costs.py'
_CHANGED = f'The kernel has changed, so {_MODULE} must change too.'


@dataclasses.dataclass(frozen=True)
class Code:
  """The numbers of VLIW instructions (bundles) of a kernel.

  Attributes:
    outside: The bundles of a call, for any grid.
    step: The bundles of each step of the grid. In decode attention, those of a
      prompt's block.
    inner: The bundles of each iteration of the loop within a step, or 0 without
      a loop. In decode attention, those of a suffix's block.
  """

  outside: int
  step: int
  inner: int


@dataclasses.dataclass(frozen=True)
class Work:
  """The work of a kernel's call.

  Attributes:
    key: The kernel's name and the properties that its code depends on.
    steps: The number of steps of the grid. If the only step has fewer than 128
      rows, it counts in proportion.
    inner: The iterations of the loop within steps, for all steps together.
    blocks: The blocks of keys in decode attention: a prompt's and a suffix's.
  """

  key: str
  steps: float = 0
  inner: int = 0
  blocks: tuple[costs.Block, ...] = ()


def describe(
  i: hlo_text.Instruction, within: hlo_text.Computation, traffic: float
) -> costs.KernelCall | None:
  """Returns the cost of a kernel's call, or None if the kernel is unknown.

  Args:
    i: The call of a Pallas kernel.
    within: The computation that contains the call.
    traffic: The bytes of its operands and results in HBM.

  Raises:
    ValueError: The operands of one of the engine's kernels have changed.
  """
  work = work_of(i, within)
  if work is None:
    return None
  code = counted().get(work.key)
  if work.blocks:
    prompt, suffix = work.blocks
    if code is None:
      return costs.KernelCall(ATTEND_BEAMS, 0, 1, None, work.blocks)
    prompt = dataclasses.replace(prompt, bundles=code.step)
    suffix = dataclasses.replace(suffix, bundles=code.inner)
    return costs.KernelCall(ATTEND_BEAMS, 0, 1, code.outside, (prompt, suffix))
  bundles = None
  if code is not None:
    bundles = code.outside + work.steps * code.step + work.inner * code.inner
  return costs.KernelCall(hlo_text.kernel_name(i), traffic, 1, bundles)


def work_of(
  i: hlo_text.Instruction, within: hlo_text.Computation
) -> Work | None:
  """Returns the work of a kernel's call, or None if the kernel is unknown.

  Raises:
    ValueError: The operands of one of the engine's kernels have changed.
  """
  name = hlo_text.kernel_name(i)
  operands = [within[x].arrays[0] for x in i.operands if x in within]
  if ATTEND_BEAMS in i.rest:
    return _beams(operands)
  if name in _OF_ROWS:
    x = _first(name, operands, 2)
    # A single step with fewer rows is shorter. The last of several steps is
    # always a full step.
    steps = x.dims[0] / ROWS
    steps = math.ceil(steps) if steps > 1 else steps
    return Work(f'{name} {x.dtype}[{x.dims[1]}]', steps)
  if name == ATTEND:
    return _prompts(_first(name, operands, 3), _first(name, i.arrays[1:], 4))
  return None


def _first(
  name: str, arrays: Sequence[hlo_text.Array], dims: int
) -> hlo_text.Array:
  """Returns a kernel's first array after a check of its dimensions."""
  if not arrays or len(arrays[0].dims) != dims:
    raise ValueError(
      f'{name} has arrays of shapes {[a.dims for a in arrays]}, but the first'
      f' one must have {dims} dims. {_CHANGED}'
    )
  return arrays[0]


def _prompts(qkv: hlo_text.Array, keys: hlo_text.Array) -> Work:
  """Returns the work of prefill attention.

  For each head, the kernel iterates over the chunks of the prompt. For each
  chunk, it iterates over the earlier chunks.

  Args:
    qkv: The queries, keys and values [B, T, N * 3 * H].
    keys: The keys [B, N, H, T].
  """
  batch, heads, width, length = keys.dims
  if qkv.dims[:2] != (batch, length):
    raise ValueError(
      f'{ATTEND} has queries of shape {qkv.dims} and keys of shape'
      f' {keys.dims}, which differ in batch or length. {_CHANGED}'
    )
  sizes = range(_TILE, min(length, _CHUNK) + 1, _TILE)
  chunk = max(size for size in sizes if length % size == 0)
  chunks = length // chunk
  return Work(
    f'{ATTEND} {qkv.dtype}[{chunk},{width}] {keys.dtype}',
    batch * heads * chunks,
    batch * heads * math.comb(chunks, 2),
  )


def _beams(arrays: Sequence[hlo_text.Array]) -> Work:
  """Returns the work of decode attention, without counts of bundles."""
  caches = [a for a in arrays if len(a.dims) == 5]
  masks = [a for a in arrays if len(a.dims) == 4 and a.dtype == 's8']
  lists = [a for a in arrays if len(a.dims) == 1]
  if len(caches) != 4 or len(masks) != 1 or not lists:
    raise ValueError(
      f'{ATTEND_BEAMS} has operands of shapes {[a.dims for a in arrays]}, but'
      f' must have four caches, a mask and a list of blocks. {_CHANGED}'
    )
  prompt, suffix = caches[0].dims[-1], caches[2].dims[-2]
  busy, suffix_blocks, _, suffix_block = masks[0].dims
  items = max(math.prod(a.dims) for a in lists) // busy
  prompt_blocks = items - suffix_blocks
  heads, width = caches[0].dims[2:4]
  values = heads * width * hlo_text.bits(caches[0].dtype) // 8
  prompt_block = keys_per_block(values, prompt)
  wrong = -(-prompt // prompt_block) != prompt_blocks
  if wrong or suffix_blocks * suffix_block != suffix:
    raise ValueError(
      f'{ATTEND_BEAMS} has {items} blocks a slot: {suffix_blocks} of'
      f' {suffix_block} keys of {suffix} in suffixes, and {prompt_blocks} of'
      f' {prompt_block} keys of {prompt} in prompts, which do not match.'
    )
  # The size of a key and its value. In int8, each also has a float32 scale.
  scales = heads * 4 if caches[0].dtype == 's8' else 0
  size = 2 * (values + scales)
  return Work(
    f'{ATTEND_BEAMS} {caches[0].dtype}[{heads},{width}]',
    blocks=(
      costs.Block(False, prompt_block, _KEYS, prompt_block * size, 0),
      costs.Block(True, suffix_block, suffix_block, suffix_block * size, 0),
    ),
  )


def keys_per_block(size: int, prompt: int) -> int:
  """Returns the keys of a prompt's block in decode attention.

  Args:
    size: The bytes of a key in all heads of a chip.
    prompt: The keys of the longest prompt.
  """
  most = min(_BLOCK_KEYS, _BLOCK_BYTES // size, prompt)
  return max(1, most // _KEYS) * _KEYS


@functools.cache
def counted() -> Mapping[str, Code]:
  """Returns the bundles that `count_bundles.py` counted, by `Work.key`."""
  record = files.read_json(COUNTED)
  return {key: Code(**code) for key, code in record['kernels'].items()}
