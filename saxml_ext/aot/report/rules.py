"""Computes seconds from a program's costs by a rule. All are estimates.

Seconds = max(work, memory) + exchange, where

  work      XLA's cycles over the clock, corrected by the kind of operation; a
            Pallas kernel's bundles over the clock, or the time to read its
            operands if that is longer, block by block of the KV that the slots
            have (`Live`); for an operation without an estimate, the time to
            move its operands and results at the memory's bandwidth;
  memory    all bytes that operations and prefetches move to and from HBM, over
            its bandwidth: prefetches run beside the work, not in it;
  exchange  collectives, by the formulas of a ring, one after the other.

No program of ours has run on a TPU, so nothing is fitted to one that did. Each
term of the rule is uncertain and is varied: `RULES` are its pessimistic,
central and optimistic forms.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import functools
import math
from typing import Any

import numpy as np

from saxml_ext.aot.report import lengths as lengths_lib
from saxml_ext.aot.report.compiled import costs
from saxml_ext.aot.tpu import topologies

KERNELS = 'kernels'
OTHERS = 'without an estimate'
MEMORY = 'waiting for memory'
EXCHANGE = 'exchange'
PARTS = (*costs.KINDS, KERNELS, OTHERS, MEMORY, EXCHANGE)
# The parts whose time follows single operations that were measured on a v5e.
MEASURED = (costs.ELEMENTWISE, costs.COPIES)


@dataclasses.dataclass(frozen=True)
class Rule:
  """One way to take what is uncertain.

  docs/aot_report.md gives the source of each value.

  Attributes:
    name: The name of the column.
    hbm: The share of HBM's peak bandwidth that is reached.
    computing: The time of products and of kernels' bundles, over what XLA's
      cycles and one bundle per cycle give.
    elementwise: The time of passes over data that multiply no matrices, over
      what XLA's cycles give.
    copies: The same for operations that only move data.
    launch: The seconds added for each operation without an estimate.
    link: The share of a link's bandwidth that an exchange reaches.
    hop: The seconds that an empty message takes from a chip to its neighbor.
    overlap: True if exchanges run beside the work instead of after it.
    host: The seconds that the host takes for a decode call while the chips
      wait.
    steps: The decode steps per token of an answer.
    always_longest: True if a static batch decodes until the limit, as Pax's
      beams do without early exit; False if it ends with its last request.
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
  steps: float
  always_longest: bool


# Microseconds on a v5e that others measured, and 1,500 cycles of XLA's estimate
# for the same operation, over [512, 256000]: a copy in float32, 1,562 and
# 1,590; bfloat16 to float32, 1,237 and 2,277; argmax in float32, 696 and 1,634.
_COPY, _CONVERT, _ARGMAX = 1562 / 1590, 1237 / 2277, 696 / 1634
# GB/s of HBM in these measurements and in XLA's own model, of 819.
_ARGMAX_RATE, _MODEL_RATE, _COPY_RATE = 753 / 819, 737 / 819, 671 / 819
# A collective among 4 chips of TPU7x was measured to start in 7 to 14 us, after
# 3 hops (all-gather, reduce-scatter) or 6 (all-reduce). A microsecond a hop is
# what interconnects of this kind take at the least.
_HOP, _LEAST_HOP = 7e-6 / 3, 1e-6
# `//saxml_ext/aot/report:dispatch` measured on a CPU: 0.32 ms for a decode
# call, and 0.34 ms for each finished request, of which a call has about two.
_HOST = 1e-3
# `//harness/systems/engine:answer_steps` measured the bundled model's answers.
_STEPS = 1.077

# The attributes of the rule's three forms, from the pessimistic one on.
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
  'steps': (2 * _STEPS - 1, _STEPS, 1.0),
  'always_longest': (True, False, False),
}
RULES = tuple(
  Rule(**dict(zip(_FORMS, values))) for values in zip(*_FORMS.values())
)
CENTRAL = RULES[1]


def topology_of(programs: costs.Set) -> topologies.Topology:
  """Returns the chips of a set.

  Raises:
    ValueError: Not all that the estimates need is known of them.
  """
  found = topologies.find(programs.topology)
  chip = found.chip
  if math.isnan(chip.clock + chip.int8):
    known = {
      t.chip.kind for t in topologies.BY_NAME.values() if t.chip.clock > 0
    }
    raise ValueError(
      f'the clock of {chip.kind} ({programs.topology}), which XLA counts cycles'
      f' of, is not known; it is of {", ".join(sorted(known))}. Add it to'
      ' saxml_ext/aot/tpu/topologies.py with its source.'
    )
  return found


@dataclasses.dataclass(frozen=True)
class Live:
  """Slots that are all busy with requests of a distribution.

  A kernel that reads each slot's own length takes as long as the slots have
  keys. That depends on the requests: a slot is more often found with one of
  many steps than with one of few, at each of its steps alike.

  Attributes:
    slots: The slots on each chip: all of them, or those of its part.
    beams: The beams of each slot.
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
      computing: The seconds to compute a block, full or not.
      reading: The seconds to read a full block, which hides behind computing,
        or the other way round.
    """
    full = max(computing, reading)
    if block.suffix:
      # The ring of steps turns wherever it stands: t steps that begin anywhere
      # lie in 1 + (t - 1) / n blocks of n steps on average.
      steps = block.keys / self.beams
      return full * self.slots * (1 + (self._mean_steps - 1) / steps)
    blocks, rest = np.divmod(self.requests.prompts, block.keys)
    read = np.ceil(rest / block.chunk) * block.chunk / block.keys * reading
    last = np.where(rest > 0, np.maximum(computing, read), 0)
    each = np.average(blocks * full + last, weights=self._steps)
    return self.slots * float(each)

  @functools.cached_property
  def _steps(self) -> np.ndarray:
    # Answers of one token are complete after the prefill. Even if there are no
    # others, a mean must exist.
    return np.maximum(self.requests.outputs - 1, 1)

  @functools.cached_property
  def _mean_steps(self) -> float:
    """Mean over all steps of how many have been done, itself included."""
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
  """Returns the seconds of each of PARTS; their sum is the estimate.

  Args:
    cost: The cost of a program or of a step.
    topology: The chips.
    rule: The form of the rule.
    slots: The requests in the slots; needed if a kernel reads blocks of KV.
  """
  clock = topology.chip.clock
  bandwidth = topology.chip.hbm_bandwidth * rule.hbm
  seconds = dict.fromkeys(PARTS, 0.0)
  passes = {costs.ELEMENTWISE: rule.elementwise, costs.COPIES: rule.copies}
  for kind, cycles in cost.cycles.items():
    seconds[kind] += passes.get(kind, rule.computing) * cycles / clock
  bundle = rule.computing / clock
  for call in cost.kernels:
    each = max((call.bundles or 0) * bundle, call.bytes / bandwidth)
    for block in call.blocks:
      if slots is None:
        raise ValueError(
          f'the kernel {call.name!r} reads what its slots have; say what they'
          ' are busy with.'
        )
      each += slots.seconds(
        block, block.bundles * bundle, block.bytes / bandwidth
      )
    seconds[KERNELS] += call.count * each
  seconds[OTHERS] = (
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
  """Returns the estimate. The arguments are those of `parts`."""
  return sum(parts(cost, topology, rule, slots).values())


def collective_seconds(
  collective: costs.Collective, topology: topologies.Topology, rule: Rule
) -> float:
  """Returns the seconds of an exchange, by a ring in both directions.

  A ring passes each part of the data on in n - 1 steps, half of it in each
  direction, and so takes (n - 1) / n * bytes / (2 links); an all-reduce goes
  round twice. n chips of a slice form a ring as they are (2x2, 2x4).

  Args:
    collective: The exchange among all chips or along an axis.
    topology: The chips and their links.
    rule: The form of the rule.
  """
  n = collective.group
  if n == 1:
    return 0.0
  link = topology.chip.link * rule.link
  rounds = 2 if collective.kind == 'all-reduce' else 1
  if collective.kind == 'collective-permute':
    return collective.bytes / link + rule.hop
  if collective.kind == 'all-to-all':
    # What a chip sends goes a quarter of the ring's way on average.
    return collective.bytes * n / 4 / (2 * link) + n // 2 * rule.hop
  moved = rounds * (n - 1) / n * collective.bytes / (2 * link)
  return moved + rounds * (n - 1) * rule.hop


@dataclasses.dataclass(frozen=True)
class Times:
  """The seconds of a set's programs by a rule, for simulations of serving.

  Attributes:
    prefills: The seconds of the prefills that were compiled, by their rows
      (prompts together) and padded length.
    call: The seconds of a call of decoding, whatever its steps.
    step: The seconds of one step of decoding.
    host: The seconds of the host per call of decoding, in which the chips wait.
  """

  prefills: Mapping[tuple[int, int], float]
  call: float
  step: float
  host: float = 0.0

  @functools.cached_property
  def rows(self) -> tuple[int, ...]:
    return tuple(sorted({rows for rows, _ in self.prefills}))

  def prefill(self, rows: int, length: int) -> float:
    """Returns the seconds of one prefill.

    Between compiled lengths they are in proportion. Beyond them the nearest one
    is scaled by length.
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
    requests: The requests that all of its slots are busy with.

  Raises:
    ValueError: It has no prefill, or not one decode program.
  """
  topology = topology_of(programs)
  slots = live(programs, requests)
  decode = programs.programs.get(f'decode {programs.slots}')
  if not programs.prefills or decode is None or decode.step is None:
    raise ValueError(
      f'the costs of {programs.title!r} are of the programs'
      f' {sorted(programs.programs)}; an estimate of samples/s needs decode'
      f' {programs.slots} with its loop, and at least one prefill_and_insert.'
    )
  prefills = {
    size: seconds(program.once, topology, rule, slots)
    for size, program in programs.prefills.items()
  }
  call = seconds(decode.once, topology, rule, slots)
  step = seconds(decode.step, topology, rule, slots)
  return Times(prefills, call, step, rule.host)
