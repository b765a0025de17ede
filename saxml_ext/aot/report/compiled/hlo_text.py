"""The text of an optimized HLO module, taken apart.

XLA gives its compiled programs as text alone (`Compiled.as_text()`); what
`hlo_costs.py` adds up is read off that: names, shapes, where each array lies,
who calls whom.
"""

from collections.abc import Iterator, Mapping
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


@dataclasses.dataclass(frozen=True)
class Array:
  """A shape.

  Attributes:
    dtype: XLA's name of the number format.
    dims: its sizes.
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
    name: unique in its computation.
    opcode: such as "fusion".
    arrays: of its result, one by one if that is a tuple.
    operands: names of the instructions that it reads.
    rest: the line from the operands on, attributes included.
    is_root: whether it is the computation's result.
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
    """Of its result, as far as that lies in HBM."""
    return sum(array.bytes for array in self.arrays if array.in_hbm)

  def text(self, pattern: str) -> str | None:
    """The first group of a regular expression found in its attributes."""
    found = re.search(pattern, self.rest)
    return found[1] if found else None


Computation = Mapping[str, Instruction]


@dataclasses.dataclass(frozen=True)
class Module:
  """A program: computations by name, and the name of the first one to run."""

  computations: Mapping[str, Computation]
  entry: str


def parse(text: str) -> Module:
  """Reads what `jax.stages.Compiled.as_text()` gives.

  Raises:
    ValueError: it is no HLO module, or a line of it cannot be understood.
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
    elif current is not None and _LINE.match(line):
      instruction = _instruction(line)
      current[instruction.name] = instruction
  if entry is None:
    raise ValueError(
      f'the text has {len(computations)} computations and none of them is'
      ' marked ENTRY; it is not an optimized HLO module. Write one with'
      ' `Compiled.as_text()`.'
    )
  return Module(computations, entry)


def bits(dtype: str) -> int:
  """Bits of an element; 0 of a token, which carries no data."""
  if dtype == 'pred':
    return 8
  found = _BITS.match(dtype)
  return int(found[1]) if found else 0


def _instruction(line: str) -> Instruction:
  start = _LINE.match(line)
  if start is None:
    raise ValueError(f'no instruction: {line[:200]!r}.')
  rest = line[start.end() :]
  shape_end = _end(rest) if rest.startswith('(') else rest.index(' ')
  opcode, bracket, operands = rest[shape_end:].strip().partition('(')
  if not bracket:
    raise ValueError(
      f'the line {line[:200]!r} has no operands; this version of XLA writes'
      ' its modules in a way that is not known here.'
    )
  operands = bracket + operands
  inside = operands[: _end(operands)]
  return Instruction(
    name=start[2],
    opcode=opcode.strip(),
    arrays=tuple(_arrays(rest[:shape_end])),
    operands=tuple(_NAME.findall(inside)),
    rest=operands,
    is_root=bool(start[1]),
  )


def _arrays(shape: str) -> Iterator[Array]:
  for dtype, dims, layout in _ARRAY.findall(shape):
    sizes = tuple(int(d.lstrip('<=')) for d in dims.split(',') if d)
    yield Array(dtype, sizes, bool(sizes) and not _ON_CHIP.search(layout))


def _end(text: str) -> int:
  """Where the bracket that `text` begins with is closed."""
  depth = 0
  for i, letter in enumerate(text):
    depth += (letter == '(') - (letter == ')')
    if depth == 0:
      return i + 1
  raise ValueError(f'a bracket is never closed: {text[:200]!r}.')


def kernel_name(i: Instruction) -> str:
  """What a Pallas kernel is called: its place in the program ends in it."""
  place = i.text(r'op_name="([^"]*)"') or i.name
  return place.removesuffix('/pallas_call').rsplit('/', 1)[-1]
