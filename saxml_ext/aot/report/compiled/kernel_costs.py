"""The cost of the engine's Pallas kernels, by the sizes of their operands.

`normalize_rows`, `quantize_rows` and `prefill_attention`
(`engine/kernels/tpu`) go through a grid whose steps all run the same code, so
their bundles are those of a step times the steps.

Decode attention, `attend_beams`, goes through a list of blocks of keys whose
length depends on the requests. Its operands' shapes give the bytes and the
number of keys of a block. Each trip of its loop runs a common part, and the
part that handles a prompt's block or a suffix's.

Bundles were counted once, in code that libtpu makes of the kernels alone
(`count_bundles.py`), and are kept beside this module.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import functools
import math
import pathlib

from saxml_ext.aot.report.compiled import costs
from saxml_ext.aot.report.compiled import hlo_text
from saxml_ext.common import files

NORMALIZE = 'normalize_rows'
QUANTIZE = 'quantize_rows'
ATTEND = 'prefill_attention'
ATTEND_BEAMS = 'attend_beams'
COUNTED = pathlib.Path(__file__).parent / 'kernel_bundles.json'

# Rows of a step of the kernels of rows.
ROWS = 128
# Tokens of a step of attention: a multiple of the first, at most the second.
_TILE = 128
_CHUNK = 512
# The keys that decode attention reads together, as of `block_list.CHUNK`.
_KEYS = 128
# The most keys and bytes of a prompt's block, as in `decode_attention.py`.
_BLOCK_KEYS = 384
_BLOCK_BYTES = 1 << 20

_MODULE = 'saxml_ext/aot/report/compiled/kernel_costs.py'
_CHANGED = f'The kernel has changed: so must {_MODULE}.'


@dataclasses.dataclass(frozen=True)
class Code:
  """VLIW instructions (bundles) of a kernel.

  Attributes:
    outside: The bundles of a call, whatever its grid.
    step: The bundles of each step of the grid; of decode attention, of a
      prompt's block.
    inner: The bundles of each trip of the loop within a step, 0 if it has none;
      of decode attention, of a suffix's block.
  """

  outside: int
  step: int
  inner: int


@dataclasses.dataclass(frozen=True)
class Work:
  """The work of a call of a kernel.

  Attributes:
    key: The code that runs: the kernel's name, and what its code depends on.
    steps: The steps of the grid; of one with less than 128 rows their share.
    inner: The trips of the loop within steps, of all steps together.
    blocks: The blocks of keys of decode attention: a prompt's and a suffix's.
  """

  key: str
  steps: float = 0
  inner: int = 0
  blocks: tuple[costs.Block, ...] = ()


def describe(
  i: hlo_text.Instruction, within: hlo_text.Computation, traffic: float
) -> costs.KernelCall | None:
  """Returns a call of one of the engine's kernels; None: it is another one's.

  Args:
    i: The call of a Pallas kernel.
    within: Its computation.
    traffic: The bytes of its operands and results that lie in HBM.

  Raises:
    ValueError: Its operands are not those that are known.
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
  """Returns what a call does; None: it is of no kernel that is known.

  Raises:
    ValueError: Its operands are not those that are known.
  """
  name = hlo_text.kernel_name(i)
  operands = [within[x].arrays[0] for x in i.operands if x in within]
  if ATTEND_BEAMS in i.rest:
    return _beams(operands)
  if name in (NORMALIZE, QUANTIZE):
    x = _first(name, operands, 2)
    # Fewer rows make a shorter step, but the last of several is a whole one.
    steps = x.dims[0] / ROWS
    steps = math.ceil(steps) if steps > 1 else steps
    return Work(f'{name} {x.dtype}[{x.dims[1]}]', steps)
  if name == ATTEND:
    return _prompts(_first(name, operands, 3), _first(name, i.arrays[1:], 4))
  return None


def _first(
  name: str, arrays: Sequence[hlo_text.Array], dims: int
) -> hlo_text.Array:
  """Returns the first of a kernel's arrays, which has so many dims."""
  if not arrays or len(arrays[0].dims) != dims:
    raise ValueError(
      f'{name} has arrays of shapes {[a.dims for a in arrays]}, of which the'
      f' first should have {dims} dims. {_CHANGED}'
    )
  return arrays[0]


def _prompts(qkv: hlo_text.Array, keys: hlo_text.Array) -> Work:
  """Returns the work of prefill attention.

  Each head of a prompt goes through the prompt's chunks, and in each of them
  through the chunks before it.

  Args:
    qkv: [B, T, N * 3 * H].
    keys: [B, N, H, T].
  """
  batch, heads, width, length = keys.dims
  if qkv.dims[:2] != (batch, length):
    raise ValueError(
      f'{ATTEND} has queries of shape {qkv.dims} and keys of shape'
      f' {keys.dims}, whose batch or length differ. {_CHANGED}'
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
  """Returns the work of decode attention: blocks whose code is not counted."""
  caches = [a for a in arrays if len(a.dims) == 5]
  masks = [a for a in arrays if len(a.dims) == 4 and a.dtype == 's8']
  lists = [a for a in arrays if len(a.dims) == 1]
  if len(caches) != 4 or len(masks) != 1 or not lists:
    raise ValueError(
      f'{ATTEND_BEAMS} has operands of shapes {[a.dims for a in arrays]}; four'
      f' caches, a mask and a list of blocks are expected. {_CHANGED}'
    )
  prompt, suffix = caches[0].dims[-1], caches[2].dims[-2]
  busy, suffix_blocks, _, suffix_block = masks[0].dims
  items = max(math.prod(a.dims) for a in lists) // busy
  prompt_blocks = items - suffix_blocks
  heads, width = caches[0].dims[2:4]
  values = heads * width * hlo_text.bits(caches[0].dtype) // 8
  most = min(_BLOCK_KEYS, _BLOCK_BYTES // values, prompt)
  prompt_block = max(1, most // _KEYS) * _KEYS
  wrong = -(-prompt // prompt_block) != prompt_blocks
  if wrong or suffix_blocks * suffix_block != suffix:
    raise ValueError(
      f'{ATTEND_BEAMS} has {items} blocks a slot: {suffix_blocks} of'
      f' {suffix_block} keys of {suffix} in suffixes, and {prompt_blocks} of'
      f' {prompt_block} keys of {prompt} in prompts; that does not add up.'
    )
  # A key and its value, and in int8 the scale of each in float32.
  scales = heads * 4 if caches[0].dtype == 's8' else 0
  size = 2 * (values + scales)
  return Work(
    f'{ATTEND_BEAMS} {caches[0].dtype}[{heads},{width}]',
    blocks=(
      costs.Block(False, prompt_block, _KEYS, prompt_block * size, 0),
      costs.Block(True, suffix_block, suffix_block, suffix_block * size, 0),
    ),
  )


@functools.cache
def counted() -> Mapping[str, Code]:
  """Returns the kernels' bundles by `Work.key`, as `count_bundles.py` found."""
  record = files.read_json(COUNTED)
  return {key: Code(**code) for key, code in record['kernels'].items()}
