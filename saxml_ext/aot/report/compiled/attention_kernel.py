"""What our decode attention on TPU costs, per block of keys that it reads.

The kernel goes through a list of blocks whose length depends on the requests
(`engine/kernels/tpu`), so its operands' sizes say little. A block's bytes and
number of keys are read off their shapes, its instructions off the dumped code:
of the kernel's loop, each trip runs what is common, and the part that handles a
prompt's block (the largest that is skippable) or a suffix's (the next).
"""

import dataclasses
import math

from saxml_ext.aot.report.compiled import bundles
from saxml_ext.aot.report.compiled import costs
from saxml_ext.aot.report.compiled import hlo_text

NAME = 'attend_beams'
# The keys that are read together, as of `work.CHUNK`.
_CHUNK = 128
# The most keys and bytes of a prompt's block, as in `beam_attention.py`.
_BLOCK_KEYS = 384
_BLOCK_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True)
class Blocks:
  """What a call of the kernel reads.

  Attributes:
    key: The kernel's name, and what its code depends on.
    prompt: The keys of a prompt's block.
    prompt_bytes: The bytes of such a block.
    suffix: The keys of a suffix's block.
    suffix_bytes: The bytes of such a block.
  """

  key: str
  prompt: int
  prompt_bytes: float
  suffix: int
  suffix_bytes: float

  def call(
    self, outside: int | None = None, prompt: float = 0, suffix: float = 0
  ) -> costs.KernelCall:
    """Returns the cost of a call.

    Args:
      outside: The bundles outside of the loop; None: the code was not counted.
      prompt: The bundles of a prompt's block.
      suffix: The bundles of a suffix's block.
    """
    blocks = (
      costs.Block(False, self.prompt, _CHUNK, self.prompt_bytes, prompt),
      costs.Block(True, self.suffix, self.suffix, self.suffix_bytes, suffix),
    )
    return costs.KernelCall(NAME, 0, 1, outside, blocks)


def of(i: hlo_text.Instruction, within: hlo_text.Computation) -> Blocks:
  """Returns what a call of the kernel reads.

  Args:
    i: The call.
    within: Its computation.

  Raises:
    ValueError: Its operands are not those that are known.
  """
  arrays = [within[name].arrays[0] for name in i.operands if name in within]
  caches = [a for a in arrays if len(a.dims) == 5]
  masks = [a for a in arrays if len(a.dims) == 4 and a.dtype == 's8']
  lists = [a for a in arrays if len(a.dims) == 1]
  if len(caches) != 4 or len(masks) != 1 or not lists:
    raise ValueError(
      f'{NAME} has operands of shapes {[a.dims for a in arrays]}; four caches,'
      ' a mask and a list of blocks are expected. The kernel has changed: so'
      ' must saxml_ext/aot/report/compiled/attention_kernel.py.'
    )
  prompt, suffix = caches[0].dims[-1], caches[2].dims[-2]
  busy, suffix_blocks, _, suffix_block = masks[0].dims
  items = max(math.prod(a.dims) for a in lists) // busy
  prompt_blocks = items - suffix_blocks
  heads, width = caches[0].dims[2:4]
  values = heads * width * hlo_text.bits(caches[0].dtype) // 8
  most = min(_BLOCK_KEYS, _BLOCK_BYTES // values, prompt)
  prompt_block = max(1, most // _CHUNK) * _CHUNK
  wrong = -(-prompt // prompt_block) != prompt_blocks
  if wrong or suffix_blocks * suffix_block != suffix:
    raise ValueError(
      f'{NAME} has {items} blocks a slot: {suffix_blocks} of {suffix_block} keys'
      f' of {suffix} in suffixes, and {prompt_blocks} of {prompt_block} keys of'
      f' {prompt} in prompts; that does not add up.'
    )

  # A key and its value, and in int8 the scale of each in float32.
  scales = heads * 4 if caches[0].dtype == 's8' else 0
  key_bytes = 2 * (values + scales)
  return Blocks(
    f'{NAME} {caches[0].dtype}[{heads},{width}]',
    prompt_block,
    prompt_block * key_bytes,
    suffix_block,
    suffix_block * key_bytes,
  )


def bundles_of(code: bundles.Kernel) -> tuple[int, int, int]:
  """Returns the bundles outside of the loop, and of each kind of block."""
  loop = max(code.loops, key=lambda x: x.common + sum(x.skippable))
  if len(loop.skippable) < 2:
    raise ValueError(
      f"{NAME}'s loop has parts {loop.skippable} that it may skip; two are"
      ' expected, for prompts and suffixes.'
    )
  prompt, suffix = (loop.common + part for part in loop.skippable[:2])
  return code.outside, prompt, suffix
