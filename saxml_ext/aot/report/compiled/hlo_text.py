"""Parses the text of an optimized HLO module, and counts the bytes it moves.

XLA gives its compiled programs only as text (`Compiled.as_text()`).
`hlo_costs.py` adds up what is read off that: names, shapes, where each array
lies, which computation calls which.

XLA's estimates do not give the bytes per operation, and its own total counts
bodies of loops once. A fusion that takes a slice of a stacked array reads that
slice alone, and one that updates an array in place writes the update alone.
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
# XLA's memory space 1 is the chip's fast memory (VMEM). It writes no space for
# HBM, and others for scalars and semaphores.
_ON_CHIP = re.compile(r'S\([1-9]\d*\)')
# Attributes that name computations, in any version's notation.
_CALLED = re.compile(
  r'\b(calls|condition|body|branch_computations|true_computation|'
  r'false_computation|to_apply|called_computations)='
  r'(\{[^}]*\}|%[\w.\-]+)'
)

_UPDATE = 'dynamic-update-slice'
SLICES = ('dynamic-slice', 'slice', 'gather')
# Custom calls of XLA's that only say something about their operand.
_MARKS = (
  'AssumeGatherIndicesInBound',
  'ConcatBitcast',
  'GatherScatterIndicesBitpacked',
)
# What they make is used as their operand is.
_SAME_VALUES = ('bitcast', 'copy', 'reshape', 'transpose', 'convert')


@dataclasses.dataclass(frozen=True)
class Array:
  """A shape.

  Attributes:
    dtype: XLA's name of the number format.
    dims: The sizes.
    in_hbm: False if XLA placed it in the chip's own memory, or if it is a
      scalar, which costs nothing to move.
  """

  dtype: str
  dims: tuple[int, ...]
  in_hbm: bool

  @property
  def bytes(self) -> int:
    """Without the padding of tiles."""
    return math.ceil(math.prod(self.dims) * bits(self.dtype) / 8)


@dataclasses.dataclass(frozen=True)
class Instruction:
  """One line of a computation.

  Attributes:
    name: The name, unique in its computation.
    opcode: The operation, such as "fusion".
    arrays: The arrays of its result, one by one if that is a tuple.
    operands: The names of the instructions that it reads.
    rest: The line from the operands on, attributes included.
    is_root: True if it is the computation's result.
  """

  name: str
  opcode: str
  arrays: tuple[Array, ...]
  operands: tuple[str, ...]
  rest: str
  is_root: bool

  @functools.cached_property
  def called(self) -> Mapping[str, tuple[str, ...]]:
    """Names of computations by the attribute that names them."""
    return {
      attribute: tuple(_NAME.findall(names))
      for attribute, names in _CALLED.findall(self.rest)
    }

  @property
  def size(self) -> int:
    """Elements of its result."""
    return sum(math.prod(array.dims) for array in self.arrays)

  @property
  def bytes(self) -> int:
    return sum(array.bytes for array in self.arrays)

  @property
  def hbm_bytes(self) -> int:
    """Bytes of its result that lie in HBM."""
    return sum(array.bytes for array in self.arrays if array.in_hbm)

  def text(self, pattern: str) -> str | None:
    """Returns the first group of a regular expression in its attributes."""
    found = re.search(pattern, self.rest)
    return found[1] if found else None


Computation = Mapping[str, Instruction]


@dataclasses.dataclass(frozen=True)
class Module:
  """A program: computations by name, and the name of the first one to run."""

  computations: Mapping[str, Computation]
  entry: str

  def callee(self, i: Instruction) -> Computation:
    """Returns the computation of a fusion; an empty one for others."""
    names = i.called.get('calls')
    return self.computations[names[0]] if names else {}


def parse(text: str) -> Module:
  """Reads what `jax.stages.Compiled.as_text()` gives.

  Raises:
    ValueError: It is no HLO module, or a line of it cannot be understood.
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
      f'the text has {len(computations)} computations and none of them is'
      ' marked ENTRY; it is not an optimized HLO module. Write one with'
      ' `Compiled.as_text()`.'
    )
  return Module(computations, entry)


def root(computation: Computation) -> Instruction:
  """Returns the instruction whose result is that of its computation."""
  return next(i for i in computation.values() if i.is_root)


def bits(dtype: str) -> int:
  """Returns the bits of an element; 0 of a token, which carries no data."""
  if dtype == 'pred':
    return 8
  found = _BITS.match(dtype)
  return int(found[1]) if found else 0


def _instruction(start: re.Match[str]) -> Instruction:
  """Parses the instruction that a match of _LINE begins."""
  line, rest = start.string, start.string[start.end() :]
  shape_end = _end(rest) if rest.startswith('(') else rest.index(' ')
  opcode, bracket, operands = rest[shape_end:].strip().partition('(')
  if not bracket:
    raise ValueError(
      f'the line {line[:200]!r} has no operands; this version of XLA writes'
      ' its modules in a way that is not known here.'
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
  """Returns where the bracket that `text` begins with is closed."""
  depth = 0
  for i, letter in enumerate(text):
    depth += (letter == '(') - (letter == ')')
    if depth == 0:
      return i + 1
  raise ValueError(f'a bracket is never closed: {text[:200]!r}.')


def kernel_name(i: Instruction) -> str:
  """Returns the name of a Pallas kernel: the end of its place."""
  place = i.text(r'op_name="([^"]*)"') or i.name
  return place.removesuffix('/pallas_call').rsplit('/', 1)[-1]


def hbm_bytes(module: Module, i: Instruction, within: Computation) -> float:
  """Returns the bytes that an operation reads from and writes to HBM.

  Args:
    module: The module.
    i: The operation.
    within: Its computation.
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
  """Returns the share of its operand that a fusion reads, if it slices it."""
  parameter = next(
    i
    for i in callee.values()
    if i.opcode == 'parameter' and i.rest.startswith(f'({index})')
  )
  return _share_used(module, callee, parameter)


def _share_used(
  module: Module, callee: Computation, value: Instruction
) -> float:
  """Returns the share of a value that the operations beside it use."""
  if value.is_root or not value.size:
    return 1.0
  used = 0.0
  for user in callee.values():
    if value.name not in user.operands:
      continue
    place = user.operands.index(value.name)
    if user.opcode in SLICES and place == 0:
      used += user.size / value.size
    elif user.opcode == _UPDATE and place == 0:
      continue  # Written in place.
    elif user.opcode == 'fusion':
      share = _share_read(module, module.callee(user), place)
      whole = share == 1.0 and user.size == value.size
      used += _share_used(module, callee, user) if whole else share
    elif user.opcode in _SAME_VALUES:
      used += _share_used(module, callee, user)
    else:
      return 1.0
  return min(1.0, used)


def _share_written(callee: Computation) -> float:
  """Returns the share of its result that a fusion writes, if done in place."""
  roots = [i for i in callee.values() if i.is_root]
  if roots and roots[0].opcode == 'tuple':
    roots = [callee[name] for name in roots[0].operands if name in callee]
  total = written = 0
  for each in roots:
    update = callee.get(each.operands[1]) if each.opcode == _UPDATE else None
    total += each.bytes
    written += (update or each).bytes
  return written / total if total else 1.0


def moved(i: Instruction, within: Computation) -> float:
  """Returns the bytes of an operation without an estimate, in any memory."""
  if not any(array.dims for array in i.arrays):
    return 0  # Done by the scalar unit, beside the rest.
  target = i.text(r'custom_call_target="(\w+)')
  if i.opcode == 'custom-call' and target in _MARKS:
    return 0
  if i.opcode == _UPDATE:
    return 2 * within[i.operands[1]].bytes
  if i.opcode in SLICES or 'kind=kCustom' in i.rest:
    return 2 * i.bytes  # Custom fusions are gathers.
  return i.bytes + sum(within[x].bytes for x in i.operands if x in within)


def prefetched(i: Instruction) -> float:
  """Returns the bytes of a copy in the background.

  Its results are source and destination.
  """
  arrays = [array for array in i.arrays if array.bytes > 4]
  size = min((array.bytes for array in arrays[:2]), default=0)
  return size * sum(array.in_hbm for array in arrays[:2])
