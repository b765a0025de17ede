"""What a compiled program costs, before a rule makes seconds of it.

Kept as JSON beside the programs: making it takes XLA's compiler for TPU,
reading it does not.
"""

from collections.abc import Callable, Mapping
import dataclasses
import json
import math
import re
from typing import Any

FORMAT = 2

_PREFILL = re.compile(r'prefill_and_insert (\d+) 0 (\d+)')

# What an operation is counted under; the order is that of tables and figures.
MATRICES = 'matrices'
ATTENTION = 'attention'
ELEMENTWISE = 'elementwise'
COPIES = 'copies'
KINDS = (MATRICES, ATTENTION, ELEMENTWISE, COPIES)


@dataclasses.dataclass(frozen=True)
class Collective:
  """An exchange between chips.

  Attributes:
    kind: XLA's name, such as "all-reduce".
    bytes: of the whole array that each chip of a group has before or after.
    group: chips that take part together.
    count: how often.
  """

  kind: str
  bytes: int
  group: int
  count: float


@dataclasses.dataclass(frozen=True)
class Block:
  """What a kernel does for each block of keys that a slot has.

  Attributes:
    suffix: whether the keys are of a suffix, which has each beam's own, or of
      a prompt.
    keys: The keys of a block, all of which are computed.
    chunk: The keys that are read together. Of a last block that is not full,
      only the chunks with keys are read.
    bytes: The bytes that are read from HBM for a full block, on each chip.
    bundles: The VLIW instructions that are issued for a block.
  """

  suffix: bool
  keys: int
  chunk: int
  bytes: float
  bundles: float


@dataclasses.dataclass(frozen=True)
class KernelCall:
  """A call of a kernel that XLA knows nothing of, such as a Pallas kernel.

  Attributes:
    name: of the kernel.
    bytes: of its operands and results in HBM, read once.
    count: how often.
    bundles: VLIW instructions that a call issues, as of `bundles.py`; None:
      not known, the bytes alone bound its time.
    blocks: what comes on top for each block of keys.
  """

  name: str
  bytes: float
  count: float
  bundles: float | None = None
  blocks: tuple[Block, ...] = ()


@dataclasses.dataclass(frozen=True)
class Cost:
  """Of a program, or of one step of its loop.

  Attributes:
    cycles: kind of operation -> sum of XLA's estimates, in cycles of the clock.
    hbm_bytes: that operations and their prefetches read and write in HBM.
    uncosted: operations without an estimate of XLA's.
    uncosted_bytes: that these read and write, wherever it lies.
    collectives: exchanges with other chips.
    kernels: calls of kernels.
  """

  cycles: Mapping[str, float] = dataclasses.field(default_factory=dict)
  hbm_bytes: float = 0
  uncosted: float = 0
  uncosted_bytes: float = 0
  collectives: tuple[Collective, ...] = ()
  kernels: tuple[KernelCall, ...] = ()

  @property
  def total_cycles(self) -> float:
    return sum(self.cycles.values())

  def __add__(self, other: 'Cost') -> 'Cost':
    cycles = {
      kind: self.cycles.get(kind, 0) + other.cycles.get(kind, 0)
      for kind in dict.fromkeys((*self.cycles, *other.cycles))
    }
    return Cost(
      cycles,
      self.hbm_bytes + other.hbm_bytes,
      self.uncosted + other.uncosted,
      self.uncosted_bytes + other.uncosted_bytes,
      _merged(self.collectives + other.collectives),
      _merged(self.kernels + other.kernels),
    )

  def times(self, n: float) -> 'Cost':
    """Of `n` repetitions."""

    def repeated(calls: tuple[Any, ...]) -> tuple[Any, ...]:
      return tuple(dataclasses.replace(c, count=c.count * n) for c in calls)

    return Cost(
      {kind: cycles * n for kind, cycles in self.cycles.items()},
      self.hbm_bytes * n,
      self.uncosted * n,
      self.uncosted_bytes * n,
      repeated(self.collectives),
      repeated(self.kernels),
    )


@dataclasses.dataclass(frozen=True)
class Program:
  """A compiled program.

  Attributes:
    once: what it costs to run, apart from the steps of its data-dependent loop.
    step: one step of that loop; None: it has none.
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
    title: what it is, in words.
    topology: the chips, as `topologies.py` names them.
    slots: requests decoded together.
    beams: of each request.
    kv: number format of keys and values.
    weights: number format of the matrices.
    model: its sizes, as of the engine's `ModelConfig`.
    compiler: version of XLA's TPU compiler.
    programs: by the engine's name of them (`str(executables.Key)`).
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
  """As JSON with sorted keys: two builds give the same text."""
  record = {'format': FORMAT, **dataclasses.asdict(costs)}
  return json.dumps(record, indent=1, sort_keys=True) + '\n'


def read(text: str, name: str) -> Set:
  """Reads what `write` made.

  Args:
    text: the file.
    name: what to call it in an error.

  Raises:
    ValueError: it is no such file, or of another version.
  """
  try:
    record = json.loads(text)
    found = record.pop('format')
  except (ValueError, KeyError, AttributeError, TypeError) as e:
    raise ValueError(
      f'{name} is no file of costs: {e!r}. Make one with'
      ' //saxml_ext/aot/report/compiled:compile_costs.'
    ) from e
  if found != FORMAT:
    raise ValueError(
      f'{name} has costs of format {found}; this program reads {FORMAT}. Make'
      ' it anew with //saxml_ext/aot/report/compiled:compile_costs.'
    )
  try:
    programs = record.pop('programs')
    return Set(
      programs={key: _program(value) for key, value in programs.items()},
      mesh=tuple(record.pop('mesh')),
      **record,
    )
  except (KeyError, TypeError, AttributeError) as e:
    raise ValueError(
      f'{name} has costs of format {FORMAT} with other fields: {e!r}. Make it'
      ' anew with //saxml_ext/aot/report/compiled:compile_costs.'
    ) from e


def _program(record: Any) -> Program:
  step = record['step']
  return Program(
    _cost(record['once']),
    None if step is None else _cost(step),
    record['memory'],
    record['lowered'],
  )


def _cost(record: Any) -> Cost:
  def calls(name: str, make: Callable) -> tuple[Any, ...]:
    return tuple(make(**call) for call in record[name])

  def kernel(blocks: list[Any], **call: Any) -> KernelCall:
    return KernelCall(blocks=tuple(Block(**b) for b in blocks), **call)

  collectives = calls('collectives', Collective)
  kernels = calls('kernels', kernel)
  return Cost(**{**record, 'collectives': collectives, 'kernels': kernels})


def _merged(calls: tuple[Any, ...]) -> tuple[Any, ...]:
  """Calls that differ in their count alone, as one."""
  counts: dict[Any, float] = {}
  for call in calls:
    key = dataclasses.replace(call, count=0)
    counts[key] = counts.get(key, 0) + call.count
  return tuple(dataclasses.replace(k, count=n) for k, n in counts.items())
