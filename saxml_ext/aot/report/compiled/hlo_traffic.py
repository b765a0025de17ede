"""How many bytes the operations of a compiled program move.

XLA's estimates do not say it per operation, and its own total counts bodies of
loops once. A fusion that takes a slice of a stacked array reads that slice
alone, and one that updates an array in place writes the update alone.
"""

from collections.abc import Callable

from saxml_ext.aot.report.compiled import hlo_text

SLICES = ('dynamic-slice', 'slice', 'gather')
# Custom calls of XLA's that only say something about their operand.
_MARKS = (
  'AssumeGatherIndicesInBound',
  'ConcatBitcast',
  'GatherScatterIndicesBitpacked',
)
# What they make is used as their operand is.
_SAME_VALUES = ('bitcast', 'copy', 'reshape', 'transpose', 'convert')


def hbm_bytes(
  module: hlo_text.Module,
  i: hlo_text.Instruction,
  within: hlo_text.Computation,
) -> float:
  """Bytes that an operation reads from and writes to HBM.

  Args:
    module: that it is part of.
    i: the operation.
    within: its computation.
  """
  if i.opcode in SLICES:
    return 2 * i.hbm_bytes
  if i.opcode == 'dynamic-update-slice':
    return 2 * within[i.operands[1]].bytes
  callee: hlo_text.Computation = {}
  if i.opcode == 'fusion':
    callee = module.computations[i.called['calls'][0]]
  read = 0.0
  for index, name in enumerate(i.operands):
    operand = within.get(name)
    if operand is not None and operand.hbm_bytes:
      share = _share_read(module, callee, index) if callee else 1.0
      read += operand.hbm_bytes * share
  return read + i.hbm_bytes * _share_written(callee)


def _share_read(
  module: hlo_text.Module, callee: hlo_text.Computation, index: int
) -> float:
  """How much of its operand a fusion reads, where it takes slices of it."""
  parameter = next(
    i
    for i in callee.values()
    if i.opcode == 'parameter' and i.rest.startswith(f'({index})')
  )
  return _share_used(module, callee, parameter)


def _share_used(
  module: hlo_text.Module,
  callee: hlo_text.Computation,
  value: hlo_text.Instruction,
) -> float:
  """How much of a value the operations of its computation use."""
  if value.is_root or not value.size:
    return 1.0
  used = 0.0
  for user in callee.values():
    if value.name not in user.operands:
      continue
    place = user.operands.index(value.name)
    if user.opcode in SLICES and place == 0:
      used += user.size / value.size
    elif user.opcode == 'dynamic-update-slice' and place == 0:
      continue  # Written in place.
    elif user.opcode == 'fusion':
      inner = module.computations[user.called['calls'][0]]
      share = _share_read(module, inner, place)
      whole = share == 1.0 and user.size == value.size
      used += _share_used(module, callee, user) if whole else share
    elif user.opcode in _SAME_VALUES:
      used += _share_used(module, callee, user)
    else:
      return 1.0
  return min(1.0, used)


def _share_written(callee: hlo_text.Computation) -> float:
  """How much of its result a fusion writes, if it updates it in place."""
  roots = [i for i in callee.values() if i.is_root]
  if roots and roots[0].opcode == 'tuple':
    roots = [callee[name] for name in roots[0].operands if name in callee]
  total = sum(root.bytes for root in roots)
  if not total:
    return 1.0
  return sum(map(_written(callee), roots)) / total


def moved(i: hlo_text.Instruction, within: hlo_text.Computation) -> float:
  """Bytes that an operation without an estimate handles, wherever they lie."""
  if not any(array.dims for array in i.arrays):
    return 0  # Done by the scalar unit, beside the rest.
  if (
    i.opcode == 'custom-call' and i.text(r'custom_call_target="(\w+)') in _MARKS
  ):
    return 0
  if i.opcode == 'dynamic-update-slice':
    return 2 * within[i.operands[1]].bytes
  if i.opcode in SLICES or 'kind=kCustom' in i.rest:
    return 2 * i.bytes  # Custom fusions are gathers.
  sizes = [within[name].bytes for name in i.operands if name in within]
  return i.bytes + sum(sizes)


def prefetched(i: hlo_text.Instruction) -> float:
  """Of a copy in the background: its results are source and destination."""
  arrays = [array for array in i.arrays if array.bytes > 4]
  if not arrays:
    return 0
  size = min(array.bytes for array in arrays[:2])
  return size * sum(array.in_hbm for array in arrays[:2])


def _written(
  callee: hlo_text.Computation,
) -> Callable[[hlo_text.Instruction], int]:
  def written(root: hlo_text.Instruction) -> int:
    if root.opcode == 'dynamic-update-slice' and root.operands[1] in callee:
      return callee[root.operands[1]].bytes
    return root.bytes

  return written
