"""What our decode attention on TPU costs, per block of keys that it reads.

The kernel goes through a list of blocks whose length depends on the requests
(`engine/kernels/tpu`), so its operands' sizes say little. A block's bytes and
number of keys are read off their shapes, its instructions off the dumped code:
of the kernel's loop, each trip runs what is common, and the part that handles a
prompt's block (the largest that is skippable) or a suffix's (the next).
"""

from collections.abc import Mapping
import math

from saxml_ext.aot.report.compiled import bundles as bundles_lib
from saxml_ext.aot.report.compiled import costs
from saxml_ext.aot.report.compiled import hlo_text

NAME = 'attend_beams'
# A prompt's last block is read up to its end in parts of so many keys.
_CHUNK = 128


def describe(
  kernels: Mapping[str, bundles_lib.Kernel],
  i: hlo_text.Instruction,
  within: hlo_text.Computation,
) -> costs.KernelCall | None:
  """A call of the kernel; None if it is of another one.

  Args:
    kernels: code by name, as of `bundles.read`; without the kernel's its
      bytes alone count.
    i: a call of a Pallas kernel.
    within: its computation.

  Raises:
    ValueError: its operands are not those that are known.
  """
  if NAME not in i.rest:
    return None
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
  layers, slots = caches[0].dims[:2]
  prompt, suffix = caches[0].dims[-1], caches[2].dims[-2]
  busy, suffix_blocks, _, suffix_block = masks[0].dims
  items = max(math.prod(a.dims) for a in lists) // busy
  prompt_blocks = items - suffix_blocks
  if prompt_blocks < 1 or suffix_blocks * suffix_block != suffix:
    raise ValueError(
      f'{NAME} has {items} blocks a slot, and {suffix_blocks} of'
      f' {suffix_block} keys of {suffix} in suffixes; that does not add up.'
    )
  prompt_block = -(-prompt // prompt_blocks)

  def key_bytes(length: int) -> float:
    kept = [a.bytes for a in arrays if a.dims[:2] == (layers, slots)
            and length in a.dims[2:]]  # fmt: skip
    return sum(kept) / (layers * slots * length)

  code = kernels.get(NAME)
  of_prompt, of_suffix = _bundles(code) if code else (0.0, 0.0)
  return costs.KernelCall(
    NAME,
    0,
    1,
    code.outside if code else None,
    (
      costs.Block(
        False,
        _CHUNK,
        _CHUNK * key_bytes(prompt),
        of_prompt * _CHUNK / prompt_block,
      ),
      costs.Block(
        True, suffix_block, suffix_block * key_bytes(suffix), of_suffix
      ),
    ),
  )


def _bundles(code: bundles_lib.Kernel) -> tuple[float, float]:
  """Of a prompt's block, and of a suffix's."""
  loop = max(code.loops, key=lambda x: x.common + sum(x.skippable))
  if len(loop.skippable) < 2:
    raise ValueError(
      f"{NAME}'s loop has parts {loop.skippable} that it may skip; two are"
      ' expected, for prompts and suffixes.'
    )
  return loop.common + loop.skippable[0], loop.common + loop.skippable[1]
