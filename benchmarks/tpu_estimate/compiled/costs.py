"""Defines the cost of a compiled program, which a rule converts to seconds.

Costs are stored as JSON. Computing them requires XLA's compiler for TPU;
reading them does not.
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

# The kinds of operations, in the order of tables and figures.
MATRICES = 'matrices'
ATTENTION = 'attention'
ELEMENTWISE = 'elementwise'
COPIES = 'copies'
KINDS = (MATRICES, ATTENTION, ELEMENTWISE, COPIES)

_Call = TypeVar('_Call', 'Collective', 'KernelCall')


@dataclasses.dataclass(frozen=True)
class Collective:
  """A data exchange between chips.

  Attributes:
    kind: XLA's name of the collective, such as "all-reduce".
    bytes: The size of the whole array that each chip of a group has before or
      after the exchange.
    group: The number of chips in a group.
    count: The number of exchanges.
  """

  kind: str
  bytes: int
  group: int
  count: int | float


@dataclasses.dataclass(frozen=True)
class Block:
  """A kernel's work for one block of a slot's keys.

  Attributes:
    suffix: True for keys of a suffix, which are separate for each beam. False
      for keys of a prompt.
    keys: The number of keys in a block. The kernel computes all of them.
    chunk: The number of keys that are read together. If the last block is not
      full, only the chunks with keys are read.
    bytes: The bytes that each chip reads from HBM for a full block.
    bundles: The VLIW instructions that are issued for a block.
  """

  suffix: bool
  keys: int
  chunk: int
  bytes: int | float
  bundles: int | float


@dataclasses.dataclass(frozen=True)
class KernelCall:
  """A call of a kernel that XLA cannot analyze, such as a Pallas kernel.

  Attributes:
    name: The name of the kernel.
    bytes: The bytes of its operands and results in HBM. Each is read once.
    count: The number of calls.
    bundles: The VLIW instructions that a call issues, counted by
      `count_bundles.py`. If it is None, only the bytes determine the time.
    blocks: The kinds of blocks of keys. Each block adds to the cost of the
      call.
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
    cycles: The sum of XLA's estimates in clock cycles, by kind of operation.
    hbm_bytes: The bytes that operations and their prefetches move to and from
      HBM.
    uncosted: The number of operations that XLA does not estimate.
    uncosted_bytes: The bytes that these operations move, in any memory.
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
  """Merges calls that differ only in their count."""
  counts: dict[_Call, int | float] = {}
  for call in calls:
    key = dataclasses.replace(call, count=0)
    counts[key] = counts.get(key, 0) + call.count
  return tuple(dataclasses.replace(k, count=n) for k, n in counts.items())


@dataclasses.dataclass(frozen=True)
class Program:
  """A compiled program.

  Attributes:
    once: The cost of a run without the steps of its data-dependent loop.
    step: The cost of one step of that loop, or None without such a loop.
    memory: The bytes on each chip, by the keys "peak", "arguments",
      "temporaries", "outputs", "aliased" and "code".
    lowered: The hash of the program before XLA compiled it, see
      `engine_programs.fingerprint`; empty if it was not stored.
  """

  once: Cost
  step: Cost | None
  memory: Mapping[str, int]
  lowered: str = ''


# A program that is not compiled yet.
UNKNOWN = Program(Cost(), None, {})


@dataclasses.dataclass(frozen=True)
class Set:
  """The programs of one serving configuration of a model.

  Attributes:
    title: The title.
    topology: The name of the chips in `topologies.py`.
    slots: The number of requests that are decoded together.
    beams: The number of beams of each request.
    kv: The number format of keys and values.
    weights: The number format of the matrices.
    model: The sizes of the model, as in the engine's `ModelConfig`.
    compiler: The version of XLA's TPU compiler.
    programs: The programs, by the engine's name (`str(executables.Key)`).
    mesh: The sizes of the mesh axes [replica, data, model].
    static: True if all slots start and end together, as in Sax.
    params: The serving params that the programs are compiled for; empty for
      GPT-J, whose programs follow from the other attributes.
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
  params: str = ''

  @property
  def parts(self) -> int:
    """The number of parts of the slots that prefill separate prompts."""
    return math.prod(self.mesh[:-1])

  @property
  def prefills(self) -> Mapping[tuple[int, int], Program]:
    """The programs that prefill whole prompts, by (rows, length)."""
    matches = {_PREFILL.fullmatch(key): p for key, p in self.programs.items()}
    return {(int(m[1]), int(m[2])): p for m, p in matches.items() if m}


def write(costs: Set) -> str:
  """Returns costs as JSON with sorted keys, for reproducible text."""
  record = {'format': FORMAT, **dataclasses.asdict(costs)}
  return files.encode_json(record, indent=1, sort_keys=True)


def read(path: str | pathlib.Path) -> Set:
  """Reads a file with the output of `write`.

  Raises:
    OSError: The file cannot be read.
    ValueError: The file is not a file of costs, or has another version.
  """
  return parse(pathlib.Path(path).read_text('utf-8'), str(path))


def parse(text: str, name: str) -> Set:
  """Parses the output of `write`.

  Args:
    text: The text.
    name: The name of the file, for errors.

  Raises:
    ValueError: The text is not a file of costs, or has another version.
  """
  compile_costs = '//benchmarks/tpu_estimate/compiled:compile_costs'
  try:
    record = files.decode_json(text, dict[str, Any], 'it')
    version = record.pop('format')
  except (ValueError, KeyError) as e:
    raise ValueError(
      f'{name} is not a file of costs: {e!r}. Make one with {compile_costs}.'
    ) from e
  if version != FORMAT:
    raise ValueError(
      f'{name} has costs of format {version}, but this program reads {FORMAT}.'
      f' Make it again with {compile_costs}.'
    )
  try:
    return strict_json.parse(record, Set)
  except ValueError as e:
    raise ValueError(
      f'{name} has costs of format {FORMAT} with other fields: {e}. Make it'
      f' again with {compile_costs}.'
    ) from e
