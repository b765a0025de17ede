"""Parses the text of an optimized HLO module, and counts the bytes it moves.

XLA exports its compiled programs only as text (`Compiled.as_text()`). This
module extracts the names, the shapes, the memory of each array and the calls
between computations. `hlo_costs.py` adds up their costs.

XLA does not estimate the bytes of each operation, and its own total counts
bodies of loops once. A fusion that slices a stacked array reads only the slice.
A fusion that updates an array in place writes only the update.
"""

from collections.abc import Mapping
import dataclasses
import functools
import math
import re

_BITS = re.compile(r'^[a-z]+?(\d+)')
_ARRAY = re.compile(r'\b([a-z]\w*)\[([\d,<=]*)\](\{[^}]*\})?')
_NAME = re.compile(r'%([\w.\-]+)')
_HEADER = re.compile(r'^(ENTRY )?%?([\w.\-]+) \(.*\{$')
_LINE = re.compile(r'^\s+(ROOT )?%?([\w.\-]+) = ')
# XLA's memory space 1 is the chip's fast memory (VMEM). XLA omits the space of
# HBM, and uses other spaces for scalars and semaphores.
_ON_CHIP = re.compile(r'S\([1-9]\d*\)')
# Attributes that name computations, in the notation of any version.
_CALLED = re.compile(
  r'\b(calls|condition|body|branch_computations|true_computation|'
  r'false_computation|to_apply|called_computations)='
  r'(\{[^}]*\}|%[\w.\-]+)'
)

_UPDATE = 'dynamic-update-slice'
SLICES = ('dynamic-slice', 'slice', 'gather')
# XLA's custom calls that only annotate their operand.
_MARKS = (
  'AssumeGatherIndicesInBound',
  'ConcatBitcast',
  'GatherScatterIndicesBitpacked',
)
# The results of these operations have the same values as their operand.
_SAME_VALUES = ('bitcast', 'copy', 'reshape', 'transpose', 'convert')


@dataclasses.dataclass(frozen=True)
class Array:
  """An array's shape and place.

  Attributes:
    dtype: XLA's name of the number format.
    dims: The sizes of the dimensions.
    in_hbm: False if XLA placed the array in the chip's own memory, or if it is
      a scalar. Moving scalars costs nothing.
  """

  dtype: str
  dims: tuple[int, ...]
  in_hbm: bool

  @property
  def bytes(self) -> int:
    """The size in bytes without the padding of tiles."""
    return math.ceil(math.prod(self.dims) * bits(self.dtype) / 8)


@dataclasses.dataclass(frozen=True)
class Instruction:
  """One line of a computation.

  Attributes:
    name: The name, which is unique in its computation.
    opcode: The operation, such as "fusion".
    arrays: The arrays of the result. A tuple has several.
    operands: The names of the instructions that it reads.
    rest: The text of the line after the opcode: operands and attributes.
    is_root: True if this is the result of the computation.
  """

  name: str
  opcode: str
  arrays: tuple[Array, ...]
  operands: tuple[str, ...]
  rest: str
  is_root: bool

  @functools.cached_property
  def called(self) -> Mapping[str, tuple[str, ...]]:
    """The names of the called computations, by attribute."""
    return {
      attribute: tuple(_NAME.findall(names))
      for attribute, names in _CALLED.findall(self.rest)
    }

  @property
  def size(self) -> int:
    """The number of elements of the result."""
    return sum(math.prod(array.dims) for array in self.arrays)

  @property
  def bytes(self) -> int:
    return sum(array.bytes for array in self.arrays)

  @property
  def hbm_bytes(self) -> int:
    """The bytes of the result that are in HBM."""
    return sum(array.bytes for array in self.arrays if array.in_hbm)

  def text(self, pattern: str) -> str | None:
    """Returns the first group of a regular expression in the attributes."""
    match = re.search(pattern, self.rest)
    return match[1] if match else None


Computation = Mapping[str, Instruction]


@dataclasses.dataclass(frozen=True)
class Module:
  """A program: its computations by name, and the name of its entry point."""

  computations: Mapping[str, Computation]
  entry: str

  def callee(self, i: Instruction) -> Computation:
    """Returns the computation of a fusion, or an empty one for others."""
    names = i.called.get('calls')
    return self.computations[names[0]] if names else {}


def parse(text: str) -> Module:
  """Parses the output of `jax.stages.Compiled.as_text()`.

  Raises:
    ValueError: The text is not an HLO module, or has a line that cannot be
      parsed.
  """
  computations: dict[str, dict[str, Instruction]] = {}
  entry = None
  current: dict[str, Instruction] | None = None
  for line in text.splitlines():
    header = _HEADER.match(line)
    if header:
      current = computations.setdefault(header[2], {})
      entry = header[2] if header[1] else entry
    elif line.startswith('}'):
      current = None
    elif current is not None and (start := _LINE.match(line)):
      current[start[2]] = _instruction(start)
  if entry is None:
    raise ValueError(
      f'the text has {len(computations)} computations, but none of them is'
      ' marked ENTRY, so it is not an optimized HLO module. Write one with'
      ' `Compiled.as_text()`.'
    )
  return Module(computations, entry)


def root(computation: Computation) -> Instruction:
  """Returns the instruction that computes the result of a computation."""
  return next(i for i in computation.values() if i.is_root)


def bits(dtype: str) -> int:
  """Returns the bits of an element, or 0 for a token, which carries no data."""
  if dtype == 'pred':
    return 8
  match = _BITS.match(dtype)
  return int(match[1]) if match else 0


def _instruction(start: re.Match[str]) -> Instruction:
  """Parses the instruction that starts at a match of _LINE."""
  line, rest = start.string, start.string[start.end() :]
  shape_end = _end(rest) if rest.startswith('(') else rest.index(' ')
  opcode, bracket, operands = rest[shape_end:].strip().partition('(')
  if not bracket:
    raise ValueError(
      f'the line {line[:200]!r} has no operands. This program does not support'
      ' the module format of this version of XLA.'
    )
  operands = bracket + operands
  arrays = []
  for dtype, dims, layout in _ARRAY.findall(rest[:shape_end]):
    sizes = tuple(int(d.lstrip('<=')) for d in dims.split(',') if d)
    in_hbm = bool(sizes) and not _ON_CHIP.search(layout)
    arrays.append(Array(dtype, sizes, in_hbm))
  return Instruction(
    name=start[2],
    opcode=opcode.strip(),
    arrays=tuple(arrays),
    operands=tuple(_NAME.findall(operands[: _end(operands)])),
    rest=operands,
    is_root=bool(start[1]),
  )


def _end(text: str) -> int:
  """Returns the index after the bracket that closes the first one in `text`."""
  depth = 0
  for i, letter in enumerate(text):
    depth += (letter == '(') - (letter == ')')
    if depth == 0:
      return i + 1
  raise ValueError(f'a bracket is not closed: {text[:200]!r}.')


def kernel_name(i: Instruction) -> str:
  """Returns the name of a Pallas kernel, the last part of its op_name."""
  op_name = i.text(r'op_name="([^"]*)"') or i.name
  return op_name.removesuffix('/pallas_call').rsplit('/', 1)[-1]


def hbm_bytes(module: Module, i: Instruction, within: Computation) -> float:
  """Returns the bytes that an operation reads from and writes to HBM.

  Args:
    module: The module.
    i: The operation.
    within: The computation that contains the operation.
  """
  if i.opcode in SLICES:
    return 2 * i.hbm_bytes
  if i.opcode == _UPDATE:
    return 2 * within[i.operands[1]].bytes
  callee = module.callee(i)
  read = 0.0
  for index, name in enumerate(i.operands):
    operand = within.get(name)
    if operand is not None and operand.hbm_bytes:
      share = _share_read(module, callee, index) if callee else 1.0
      read += operand.hbm_bytes * share
  return read + i.hbm_bytes * _share_written(callee)


def _share_read(module: Module, callee: Computation, index: int) -> float:
  """Returns the share of an operand that a fusion reads, if it slices it."""
  parameter = next(
    i
    for i in callee.values()
    if i.opcode == 'parameter' and i.rest.startswith(f'({index})')
  )
  return _share_used(module, callee, parameter)


def _share_used(
  module: Module, callee: Computation, value: Instruction
) -> float:
  """Returns the share of a value that operations in its computation use."""
  if value.is_root or not value.size:
    return 1.0
  used = 0.0
  for user in callee.values():
    if value.name not in user.operands:
      continue
    index = user.operands.index(value.name)
    if user.opcode in SLICES and index == 0:
      used += user.size / value.size
    elif user.opcode == _UPDATE and index == 0:
      continue  # The update is in place.
    elif user.opcode == 'fusion':
      share = _share_read(module, module.callee(user), index)
      whole = share == 1.0 and user.size == value.size
      used += _share_used(module, callee, user) if whole else share
    elif user.opcode in _SAME_VALUES:
      used += _share_used(module, callee, user)
    else:
      return 1.0
  return min(1.0, used)


def _share_written(callee: Computation) -> float:
  """Returns the share of the result that a fusion writes, if it is in place."""
  roots = [i for i in callee.values() if i.is_root]
  if roots and roots[0].opcode == 'tuple':
    roots = [callee[name] for name in roots[0].operands if name in callee]
  total = written = 0
  for root in roots:
    update = callee.get(root.operands[1]) if root.opcode == _UPDATE else None
    total += root.bytes
    written += (update or root).bytes
  return written / total if total else 1.0


def moved(i: Instruction, within: Computation) -> float:
  """Returns the bytes that an operation without an estimate moves anywhere."""
  if not any(array.dims for array in i.arrays):
    return 0  # The scalar unit runs this in parallel.
  target = i.text(r'custom_call_target="(\w+)')
  if i.opcode == 'custom-call' and target in _MARKS:
    return 0
  if i.opcode == _UPDATE:
    return 2 * within[i.operands[1]].bytes
  if i.opcode in SLICES or 'kind=kCustom' in i.rest:
    return 2 * i.bytes  # Custom fusions are gathers.
  return i.bytes + sum(within[x].bytes for x in i.operands if x in within)


def prefetched(i: Instruction) -> float:
  """Returns the bytes of a background copy.

  The results of the copy are its source and its destination.
  """
  arrays = [array for array in i.arrays if array.bytes > 4]
  size = min((array.bytes for array in arrays[:2]), default=0)
  return size * sum(array.in_hbm for array in arrays[:2])
