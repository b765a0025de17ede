"""Estimates the time of each kernel in a program for an NVIDIA GPU.

The bytes and operations of a kernel follow from the optimized HLO. The rates
are those that an H200 reached.
"""

from collections.abc import Iterator, Sequence
import dataclasses
import math
import re

from benchmarks.tpu_estimate.compiled import hlo_text

# Measured on one H200; see docs/accelerators.md.
RATES = {
  'read_bytes_per_s': 4304e9,
  'bfloat16_operations_per_s': 768e12,
  'int8_operations_per_s': 1458e12,
  'fp8_operations_per_s': 1551e12,
}
# The share of the bandwidth of a product of 4096 x 14336, by format and rows.
_INT8 = {1: 0.50, 8: 0.50, 32: 0.56, 128: 0.41}
_PRODUCTS = {
  'bf16': {1: 0.59, 8: 0.75, 32: 0.70, 128: 0.70},
  's8': _INT8,
  'f8e4m3fn': _INT8,  # Not measured.
}
# The formats in which products compute in the least and in the most time.
# Without a GPU, XLA chooses kernels that convert fp8 to 16 bits.
_COMPUTING = {
  'bf16': ('bfloat16', 'bfloat16'),
  's8': ('int8', 'int8'),
  'f8e4m3fn': ('fp8', 'bfloat16'),
}
# The share of all products of a bfloat16 step of 8 rows.
_BEST_SHARE = 0.83
# The share of the attention of 8 slots of 2,048 tokens.
_ATTENTION_SHARE = 0.41
# Small kernels took 1.4 us each in a step, and 2.7 us each alone.
_LAUNCHES = 1.4e-6, 2.7e-6
# An iteration of a loop took 24 us longer than its kernels.
ITERATION = 24e-6
# The kernels that read and join only the blocks of keys in use.
_OF_BLOCKS = ('attend_blocks', 'join_blocks')
_FREE = {'bitcast', 'constant', 'get-tuple-element', 'parameter', 'tuple'}
_IN_PLACE = re.compile(r'\{\d*\}: \((\d+), ')
_ALIASING = r'output_to_operand_aliasing=(\{.*?\)\})'


@dataclasses.dataclass(frozen=True)
class Kernel:
  """The work of a kernel.

  Attributes:
    bytes: The bytes that it reads and writes.
    operations: The additions and multiplications of its product; 0 without one.
    factors: XLA's name of the format of the product's factors; '' without one.
  """

  bytes: float
  operations: float = 0.0
  factors: str = ''

  def seconds(self, rows: int) -> tuple[float, float]:
    """Returns the least and the most time.

    Args:
      rows: The number of rows of the step's products.
    """
    share = _ATTENTION_SHARE
    computing = [0.0, 0.0]
    if self.factors:
      shares = _PRODUCTS[self.factors]
      share = shares[max(n for n in shares if n <= rows)]
      computing = [
        self.operations / RATES[f'{kind}_operations_per_s']
        for kind in _COMPUTING[self.factors]
      ]
    reading = self.bytes / RATES['read_bytes_per_s']
    least, most = _LAUNCHES
    return (
      max(least, reading / _BEST_SHARE, computing[0]),
      most + max(reading / share, computing[1]),
    )


def kernels(text: str, blocks: float = 1.0) -> list[Kernel]:
  """Returns the kernels of a step.

  Args:
    text: The optimized HLO of a program that decodes.
    blocks: The share of the blocks of keys that the step reads.
  """
  module = hlo_text.parse(text)
  bodies = (
    module.computations[i.called['body'][0]]
    for computation in module.computations.values()
    for i in computation.values()
    if i.opcode == 'while'
  )
  body = max(bodies, key=len)
  return [
    _kernel(module, i, body, blocks)
    for i in body.values()
    if i.opcode not in _FREE
  ]


def _kernel(
  module: hlo_text.Module,
  i: hlo_text.Instruction,
  within: hlo_text.Computation,
  blocks: float,
) -> Kernel:
  traffic = hlo_text.hbm_bytes(module, i, within)
  # These kernels write one token into keys and values, which stay in place.
  for index in _IN_PLACE.findall(i.text(_ALIASING) or ''):
    traffic -= 2 * within[i.operands[int(index)]].bytes
  if hlo_text.kernel_name(i) in _OF_BLOCKS:
    traffic *= blocks
  operations, factors = 0.0, ''
  for product, left in _products(module, i):
    dims = product.text(r'lhs_contracting_dims=\{([\d,]*)\}') or ''
    inner = math.prod(left.dims[int(n)] for n in dims.split(',') if n)
    operations += 2.0 * product.size * inner
    factors = left.dtype if left.dtype in _PRODUCTS else 'bf16'
  return Kernel(traffic, operations, factors)


def _products(
  module: hlo_text.Module, i: hlo_text.Instruction
) -> Iterator[tuple[hlo_text.Instruction, hlo_text.Array]]:
  """Yields the products in a kernel, each with its left factor."""
  callee = module.callee(i)
  for inner in callee.values():
    if inner.opcode == 'dot':
      yield inner, callee[inner.operands[0]].arrays[0]
    yield from _products(module, inner)


def step_seconds(work: Sequence[Kernel], rows: int) -> tuple[float, float]:
  """Returns the least and the most time of kernels, one after the other."""
  times = [kernel.seconds(rows) for kernel in work]
  return sum(t for t, _ in times), sum(t for _, t in times)
