"""Converts a program's costs to seconds by a rule. All are estimates.

Seconds = max(work, memory) + exchange, where

  work      is XLA's cycles divided by the clock rate, corrected by the kind of
            operation. For a Pallas kernel, it is the bundles divided by the
            clock rate, or the time to read its operands if that is longer. It
            is computed for each block of the slots' KV (`Live`). For an
            operation without an estimate, it is the time to move its operands
            and results at the memory's bandwidth.
  memory    is all bytes that operations and prefetches move to and from HBM,
            divided by its bandwidth. Prefetches run in parallel to the work.
  exchange  is the time of all collectives one after the other, by the formulas
            of a ring.

No program of this repository has run on a TPU, so the rule is not fitted to
measurements of our programs. Each term of the rule is uncertain and is varied:
`RULES` contains a pessimistic, a central and an optimistic form.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import functools
import math
from typing import Any

import numpy as np

from benchmarks.tpu_estimate import chips
from benchmarks.tpu_estimate import lengths as lengths_lib
from benchmarks.tpu_estimate.compiled import costs
from saxml_ext.aot.tpu import topologies

KERNELS = 'kernels'
UNCOSTED = 'without an estimate'
MEMORY = 'waiting for memory'
EXCHANGE = 'exchange'
PARTS = (*costs.KINDS, KERNELS, UNCOSTED, MEMORY, EXCHANGE)
# The time of these parts is based on operations that others measured on a v5e.
MEASURED = (costs.ELEMENTWISE, costs.COPIES)


@dataclasses.dataclass(frozen=True)
class Rule:
  """One choice of the uncertain terms.

  docs/aot_report.md gives the source of each value.

  Attributes:
    name: The name of the column.
    hbm: The share of HBM's peak bandwidth that programs reach.
    computing: The factor from XLA's cycles, or from one cycle per bundle, to
      the time of products and kernels.
    elementwise: The factor from XLA's cycles to the time of elementwise
      operations, which multiply no matrices.
    copies: The factor from XLA's cycles to the time of operations that only
      move data.
    launch: The overhead in seconds of each operation without an estimate.
    link: The share of a link's bandwidth that an exchange reaches.
    hop: The seconds that an empty message takes from a chip to its neighbor.
    overlap: True if exchanges overlap with the work instead of following it.
    host: The seconds of the host per decode call. The chips wait during this
      time.
    message: The seconds of the host per message of a stream. The chips wait
      during this time too.
    steps: The decode steps per token of an answer that beam search finds.
    always_longest: True if a static batch decodes until the limit, like beam
      search in Pax without early exit. False if it ends with its last request.
  """

  name: str
  hbm: float
  computing: float
  elementwise: float
  copies: float
  launch: float
  link: float
  hop: float
  overlap: bool
  host: float
  message: float
  steps: float
  always_longest: bool


# These are the microseconds that others measured on a v5e, and the time of
# XLA's estimated cycles at 1,500 cycles per microsecond. The operations are
# over [512, 256000]: a copy in float32 (1,562 and 1,590), bfloat16 to float32
# (1,237 and 2,277) and argmax in float32 (696 and 1,634).
_COPY, _CONVERT, _ARGMAX = 1562 / 1590, 1237 / 2277, 696 / 1634
# HBM's rate in GB/s in these measurements and in XLA's model, divided by the
# peak of 819.
_ARGMAX_RATE, _MODEL_RATE, _COPY_RATE = 753 / 819, 737 / 819, 671 / 819
# Others measured that a collective among 4 chips of TPU7x starts in 7 to 14 us.
# It needs 3 hops (all-gather, reduce-scatter) or 6 (all-reduce). Interconnects
# of this kind take at least a microsecond per hop.
_HOP, _LEAST_HOP = 7e-6 / 3, 1e-6
# On a CPU, a decode call took 0.32 ms, and a finished request 0.34 ms. A call
# has about two of these.
_HOST = 1e-3
# On a CPU too, this is the time to read a step of one stream.
_MESSAGE = 30e-6
# The bundled model's 512 answers of 56.9 tokens took 61.3 steps.
_STEPS = 1.077

# The attributes of the rule's three forms, starting with the pessimistic one.
_FORMS: Mapping[str, Sequence[Any]] = {
  'name': ('pessimistic', 'central', 'optimistic'),
  'hbm': (_COPY_RATE, _MODEL_RATE, _ARGMAX_RATE),
  'computing': (1.3, 1.1, 1.0),
  'elementwise': (1.0, _CONVERT, _ARGMAX),
  'copies': (1.0, _COPY, _COPY_RATE * _COPY),
  'launch': (1e-6, 0.0, 0.0),
  'link': (0.7, 0.9, 1.0),
  'hop': (2 * _HOP, _HOP, _LEAST_HOP),
  'overlap': (False, False, True),
  'host': (3 * _HOST, _HOST, 0.0),
  'message': (3 * _MESSAGE, _MESSAGE, 0.0),
  'steps': (2 * _STEPS - 1, _STEPS, 1.0),
  'always_longest': (True, False, False),
}
RULES = tuple(
  Rule(**dict(zip(_FORMS, values))) for values in zip(*_FORMS.values())
)
CENTRAL = RULES[1]


def topology_of(programs: costs.Set) -> topologies.Topology:
  """Returns the topology of a set.

  Raises:
    ValueError: A figure of the chip is unknown that the estimates need.
  """
  topology = topologies.find(programs.topology)
  peaks = chips.BY_CHIP[topology.chip]
  if math.isnan(peaks.clock + peaks.int8):
    known = [chip.kind for chip, p in chips.BY_CHIP.items() if p.clock > 0]
    raise ValueError(
      f'the clock rate of {topology.chip.kind} ({programs.topology}), which'
      f" XLA's cycles need, is unknown. Known: {', '.join(sorted(known))}. Add"
      ' it to benchmarks/tpu_estimate/chips.py with its source.'
    )
  return topology


@dataclasses.dataclass(frozen=True)
class Live:
  """A model of slots that are all busy with requests of a distribution.

  The time of a kernel that reads each slot's own length depends on the keys in
  the slots, and so on the requests. At a random time, a slot more
  often holds a request with many steps than one with few steps. All steps of a
  request are equally likely.

  Attributes:
    slots: The number of slots on each chip: all of them, or those of its part.
    beams: The number of beams of each slot.
    requests: The requests.
  """

  slots: int
  beams: int
  requests: lengths_lib.Lengths

  def seconds(
    self, block: costs.Block, computing: float, reading: float
  ) -> float:
    """Returns the mean seconds that the blocks of all slots take in a step.

    Args:
      block: The kind of block.
      computing: The seconds to compute a block, even if it is not full.
      reading: The seconds to read a full block. Reading and computing overlap.
    """
    full = max(computing, reading)
    if block.suffix:
      # A request can start at any position in the ring of steps. On average, t
      # steps cover 1 + (t - 1) / n blocks of n steps.
      steps = block.keys / self.beams
      return full * self.slots * (1 + (self._mean_steps - 1) / steps)
    blocks, rest = np.divmod(self.requests.prompts, block.keys)
    read = np.ceil(rest / block.chunk) * block.chunk / block.keys * reading
    last = np.where(rest > 0, np.maximum(computing, read), 0)
    mean = np.average(blocks * full + last, weights=self._steps)
    return self.slots * float(mean)

  @functools.cached_property
  def _steps(self) -> np.ndarray:
    # The prefill completes answers of one token. A mean must exist even if all
    # answers have one token.
    return np.maximum(self.requests.outputs - 1, 1)

  @functools.cached_property
  def _mean_steps(self) -> float:
    """The mean position of a step in its request, starting at 1."""
    return float(np.average((self._steps + 1) / 2, weights=self._steps))


def live(made: costs.Set, requests: lengths_lib.Lengths) -> Live:
  """Returns a set's slots, busy with `requests`."""
  return Live(made.slots // made.parts, made.beams, requests)


def parts(
  cost: costs.Cost,
  topology: topologies.Topology,
  rule: Rule,
  slots: Live | None = None,
) -> Mapping[str, float]:
  """Returns the seconds of each of PARTS. Their sum is the estimate.

  Args:
    cost: The cost of a program or of a step.
    topology: The chips.
    rule: The form of the rule.
    slots: The requests in the slots. Required if a kernel reads blocks of KV.
  """
  peaks = chips.BY_CHIP[topology.chip]
  clock = peaks.clock
  bandwidth = peaks.hbm_bandwidth * rule.hbm
  seconds = dict.fromkeys(PARTS, 0.0)
  passes = {costs.ELEMENTWISE: rule.elementwise, costs.COPIES: rule.copies}
  for kind, cycles in cost.cycles.items():
    seconds[kind] += passes.get(kind, rule.computing) * cycles / clock
  bundle = rule.computing / clock
  for call in cost.kernels:
    kernel_seconds = max((call.bundles or 0) * bundle, call.bytes / bandwidth)
    for block in call.blocks:
      if slots is None:
        raise ValueError(
          f'the cost of kernel {call.name!r} depends on the contents of the'
          ' slots. Pass `slots`.'
        )
      kernel_seconds += slots.seconds(
        block, block.bundles * bundle, block.bytes / bandwidth
      )
    seconds[KERNELS] += call.count * kernel_seconds
  seconds[UNCOSTED] = (
    cost.uncosted_bytes / bandwidth + cost.uncosted * rule.launch
  )
  work = sum(seconds.values())
  seconds[MEMORY] = max(0.0, cost.hbm_bytes / bandwidth - work)
  exchange = sum(
    c.count * collective_seconds(c, topology, rule) for c in cost.collectives
  )
  if rule.overlap:
    exchange = max(0.0, exchange - work - seconds[MEMORY])
  seconds[EXCHANGE] = exchange
  return seconds


def seconds(
  cost: costs.Cost,
  topology: topologies.Topology,
  rule: Rule,
  slots: Live | None = None,
) -> float:
  """Returns the estimated seconds. The arguments are those of `parts`."""
  return sum(parts(cost, topology, rule, slots).values())


def collective_seconds(
  collective: costs.Collective, topology: topologies.Topology, rule: Rule
) -> float:
  """Returns the seconds of an exchange, by a ring in both directions.

  A ring passes each part of the data on in n - 1 steps, half of it in each
  direction. This takes (n - 1) / n * bytes / (2 links). An all-reduce goes
  around twice. The n chips of a slice (2x2, 2x4) form a ring.

  Args:
    collective: The exchange among all chips or along an axis.
    topology: The chips and their links.
    rule: The form of the rule.
  """
  n = collective.group
  if n == 1:
    return 0.0
  link = chips.BY_CHIP[topology.chip].link * rule.link
  rounds = 2 if collective.kind == 'all-reduce' else 1
  if collective.kind == 'collective-permute':
    return collective.bytes / link + rule.hop
  if collective.kind == 'all-to-all':
    # On average, the data of a chip travels a quarter of the ring.
    return collective.bytes * n / 4 / (2 * link) + n // 2 * rule.hop
  moved = rounds * (n - 1) / n * collective.bytes / (2 * link)
  return moved + rounds * (n - 1) * rule.hop


@dataclasses.dataclass(frozen=True)
class Times:
  """The seconds of a set's programs by a rule, for simulations of serving.

  Attributes:
    prefills: The seconds of the compiled prefills, by their rows (prompts that
      are prefilled together) and padded length.
    call: The seconds of a decode call without its steps.
    step: The seconds of one decode step with all slots busy.
    host: The seconds of the host per decode call, while the chips wait.
    message: The seconds of the host per message of a stream.
    idle: The seconds by which each slot without a request shortens a step.
  """

  prefills: Mapping[tuple[int, int], float]
  call: float
  step: float
  host: float = 0.0
  message: float = 0.0
  idle: float = 0.0

  @functools.cached_property
  def rows(self) -> tuple[int, ...]:
    return tuple(sorted({rows for rows, _ in self.prefills}))

  def prefill(self, rows: int, length: int) -> float:
    """Returns the seconds of one prefill.

    Between compiled lengths, the time is interpolated. Outside of them, the
    time of the nearest one is scaled by length.
    """
    known = {n: s for (r, n), s in self.prefills.items() if r == rows}
    nearest = min(max(length, min(known)), max(known))
    lengths = sorted(known)
    seconds = np.interp(nearest, lengths, [known[n] for n in lengths])
    return float(seconds) * (length / nearest)


def times(
  programs: costs.Set, rule: Rule, requests: lengths_lib.Lengths
) -> Times:
  """Returns the times of a set.

  Args:
    programs: The set.
    rule: The form of the rule.
    requests: The requests in its slots, which are all busy.

  Raises:
    ValueError: The set lacks a prefill or its decode program.
  """
  topology = topology_of(programs)
  slots = live(programs, requests)
  decode = programs.programs.get(f'decode {programs.slots}')
  if not programs.prefills or decode is None or decode.step is None:
    raise ValueError(
      f'{programs.title!r} has costs of the programs'
      f' {sorted(programs.programs)}. An estimate of samples/s needs decode'
      f' {programs.slots} with its loop, and at least one prefill_and_insert.'
    )
  prefills = {
    size: seconds(program.once, topology, rule, slots)
    for size, program in programs.prefills.items()
  }
  call = seconds(decode.once, topology, rule, slots)
  step = seconds(decode.step, topology, rule, slots)
  empty = seconds(
    decode.step, topology, rule, dataclasses.replace(slots, slots=0)
  )
  idle = (step - empty) / programs.slots
  return Times(prefills, call, step, rule.host, rule.message, idle)
