"""The cost of a compiled program, before a rule makes seconds of it.

Costs are kept as JSON beside the programs: making it takes XLA's compiler for
TPU, reading it does not.
"""

from collections.abc import Mapping
import dataclasses
import math
import pathlib
import re
from typing import Any, TypeVar

from saxml_ext.aot import strict_json
from saxml_ext.common import files

FORMAT = 2

_PREFILL = re.compile(r'prefill_and_insert (\d+) 0 (\d+)')

# What an operation is counted under; the order is that of tables and figures.
MATRICES = 'matrices'
ATTENTION = 'attention'
ELEMENTWISE = 'elementwise'
COPIES = 'copies'
KINDS = (MATRICES, ATTENTION, ELEMENTWISE, COPIES)

_Call = TypeVar('_Call', 'Collective', 'KernelCall')


@dataclasses.dataclass(frozen=True)
class Collective:
  """An exchange between chips.

  Attributes:
    kind: XLA's name, such as "all-reduce".
    bytes: The size of the whole array that each chip of a group has before or
      after.
    group: The chips that take part together.
    count: The number of exchanges.
  """

  kind: str
  bytes: int
  group: int
  count: int | float


@dataclasses.dataclass(frozen=True)
class Block:
  """The work of a kernel for each block of keys that a slot has.

  Attributes:
    suffix: True if the keys are of a suffix, which has each beam's own; False
      if they are of a prompt.
    keys: The keys of a block, all of which are computed.
    chunk: The keys that are read together. Of a last block that is not full,
      only the chunks with keys are read.
    bytes: The bytes that are read from HBM for a full block, on each chip.
    bundles: The VLIW instructions that are issued for a block.
  """

  suffix: bool
  keys: int
  chunk: int
  bytes: int | float
  bundles: int | float


@dataclasses.dataclass(frozen=True)
class KernelCall:
  """A call of a kernel that XLA knows nothing of, such as a Pallas kernel.

  Attributes:
    name: The name of the kernel.
    bytes: The bytes of its operands and results in HBM, read once.
    count: The number of calls.
    bundles: The VLIW instructions that a call issues, as `count_bundles.py`
      counts them; None: not known, the bytes alone bound its time.
    blocks: The blocks of keys, each of which adds to this.
  """

  name: str
  bytes: int | float
  count: int | float
  bundles: int | float | None = None
  blocks: tuple[Block, ...] = ()


@dataclasses.dataclass(frozen=True)
class Cost:
  """The cost of a program, or of one step of its loop.

  Attributes:
    cycles: The kinds of operations -> sums of XLA's estimates, in cycles of the
      clock.
    hbm_bytes: The bytes that operations and their prefetches move in HBM.
    uncosted: The number of operations without an estimate of XLA's.
    uncosted_bytes: The bytes that these move, wherever they lie.
    collectives: The exchanges with other chips.
    kernels: The calls of kernels.
  """

  cycles: Mapping[str, int | float] = dataclasses.field(default_factory=dict)
  hbm_bytes: int | float = 0
  uncosted: int | float = 0
  uncosted_bytes: int | float = 0
  collectives: tuple[Collective, ...] = ()
  kernels: tuple[KernelCall, ...] = ()

  @property
  def total_cycles(self) -> float:
    return sum(self.cycles.values())

  def __add__(self, other: 'Cost') -> 'Cost':
    kinds = dict.fromkeys((*self.cycles, *other.cycles))
    return Cost(
      {k: self.cycles.get(k, 0) + other.cycles.get(k, 0) for k in kinds},
      self.hbm_bytes + other.hbm_bytes,
      self.uncosted + other.uncosted,
      self.uncosted_bytes + other.uncosted_bytes,
      _merged(self.collectives + other.collectives),
      _merged(self.kernels + other.kernels),
    )

  def times(self, n: float) -> 'Cost':
    """Returns the cost of `n` repetitions."""

    def repeated(calls: tuple[_Call, ...]) -> tuple[_Call, ...]:
      return tuple(dataclasses.replace(c, count=c.count * n) for c in calls)

    return Cost(
      {kind: cycles * n for kind, cycles in self.cycles.items()},
      self.hbm_bytes * n,
      self.uncosted * n,
      self.uncosted_bytes * n,
      repeated(self.collectives),
      repeated(self.kernels),
    )


def _merged(calls: tuple[_Call, ...]) -> tuple[_Call, ...]:
  """Returns calls that differ in their count alone as one."""
  counts: dict[_Call, int | float] = {}
  for call in calls:
    key = dataclasses.replace(call, count=0)
    counts[key] = counts.get(key, 0) + call.count
  return tuple(dataclasses.replace(k, count=n) for k, n in counts.items())


@dataclasses.dataclass(frozen=True)
class Program:
  """A compiled program.

  Attributes:
    once: The cost of a run, apart from the steps of its data-dependent loop.
    step: The cost of one step of that loop; None: it has none.
    memory: "peak", "arguments", "temporaries", "outputs", "aliased", "code" ->
      bytes on each chip.
    lowered: The hash of the program before XLA compiled it, as of
      `engine_programs.fingerprint`; empty if it was not kept.
  """

  once: Cost
  step: Cost | None
  memory: Mapping[str, int]
  lowered: str = ''


@dataclasses.dataclass(frozen=True)
class Set:
  """The programs of one way to serve a model.

  Attributes:
    title: The title, in words.
    topology: The chips, as `topologies.py` names them.
    slots: The requests decoded together.
    beams: The beams of each request.
    kv: The number format of keys and values.
    weights: The number format of the matrices.
    model: The sizes, as of the engine's `ModelConfig`.
    compiler: The version of XLA's TPU compiler.
    programs: The programs by the engine's name (`str(executables.Key)`).
    mesh: The sizes of the mesh axes [replica, data, model].
    static: True if all slots begin and end together, as in Sax.
  """

  title: str
  topology: str
  slots: int
  beams: int
  kv: str
  weights: str
  model: Mapping[str, Any]
  compiler: str
  programs: Mapping[str, Program]
  mesh: tuple[int, ...] = (1, 1, 4)
  static: bool = False

  @property
  def parts(self) -> int:
    """The parts of the slots that prefill prompts of their own."""
    return math.prod(self.mesh[:-1])

  @property
  def prefills(self) -> Mapping[tuple[int, int], Program]:
    """The programs that prefill whole prompts, by (rows, length)."""
    found = {_PREFILL.fullmatch(key): p for key, p in self.programs.items()}
    return {(int(m[1]), int(m[2])): p for m, p in found.items() if m}


def write(costs: Set) -> str:
  """Returns costs as JSON with sorted keys: two builds give the same text."""
  record = {'format': FORMAT, **dataclasses.asdict(costs)}
  return files.encode_json(record, indent=1, sort_keys=True)


def read(path: str | pathlib.Path) -> Set:
  """Reads a file that `write` made.

  Raises:
    OSError: It cannot be read.
    ValueError: It is no such file, or of another version.
  """
  return parse(pathlib.Path(path).read_text('utf-8'), str(path))


def parse(text: str, name: str) -> Set:
  """Parses what `write` made.

  Args:
    text: The text.
    name: The name of the file, for errors.

  Raises:
    ValueError: It is no such text, or of another version.
  """
  compile_costs = '//saxml_ext/aot/report/compiled:compile_costs'
  try:
    record = files.decode_json(text, dict[str, Any], 'it')
    found = record.pop('format')
  except (ValueError, KeyError) as e:
    raise ValueError(
      f'{name} is no file of costs: {e!r}. Make one with {compile_costs}.'
    ) from e
  if found != FORMAT:
    raise ValueError(
      f'{name} has costs of format {found}; this program reads {FORMAT}. Make'
      f' it anew with {compile_costs}.'
    )
  try:
    return strict_json.parse(record, Set)
  except ValueError as e:
    raise ValueError(
      f'{name} has costs of format {FORMAT} with other fields: {e}. Make it'
      f' anew with {compile_costs}.'
    ) from e
