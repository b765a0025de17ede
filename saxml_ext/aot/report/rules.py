"""The rule that makes seconds of a program's costs. All of them are estimates.

Seconds = max(work, memory) + exchange, where

  work      XLA's cycles over the clock; a Pallas kernel's bundles over the
            clock, or the time to read its operands if that is longer, block by
            block of the KV that the slots have (`live.py`); for an
            operation without an estimate, the time to move its operands and
            results at the memory's bandwidth;
  memory    all bytes that operations and prefetches move to and from HBM, over
            its bandwidth: prefetches run beside the work, not in it;
  exchange  collectives, by the formulas of a ring, one after the other.

Nothing is fitted to a measurement. What is uncertain in the rule is varied
instead: `RULES` are its optimistic, central and pessimistic forms, and the
published figures of Sax stand beside what the same rules say of it.
"""

from collections.abc import Mapping
import dataclasses

from saxml_ext.aot.report import chips
from saxml_ext.aot.report import live
from saxml_ext.aot.report.compiled import costs

KERNELS = 'kernels'
OTHERS = 'without an estimate'
MEMORY = 'waiting for memory'
EXCHANGE = 'exchange'
PARTS = (*costs.KINDS, KERNELS, OTHERS, MEMORY, EXCHANGE)

# Seconds from chip to neighbour: of a message without content. Google gives no
# figure; about a microsecond is what interconnects of this kind take.
_HOP = 1e-6


@dataclasses.dataclass(frozen=True)
class Rule:
  """How what is uncertain is taken.

  Attributes:
    name: of the column.
    streaming: share of XLA's cycles that passes over data take which multiply
      no matrices. XLA expects 333 GB/s of them where v5e's memory does 819.
    link: share of a link's bandwidth that an exchange gets.
    overlap: whether exchanges run beside the work instead of after it.
    launch: seconds added per operation without an estimate.
    always_longest: whether a static batch decodes until the limit, as Pax's
      beams do without early exit; else until the last request is done.
  """

  name: str
  streaming: float
  link: float
  overlap: bool
  launch: float
  always_longest: bool


OPTIMISTIC = Rule('optimistic', 333 / 819, 0.9, True, 0.0, False)
CENTRAL = Rule('central', 1.0, 0.9, False, 0.0, False)
PESSIMISTIC = Rule('pessimistic', 1.0, 0.7, False, 1e-6, True)
RULES = (PESSIMISTIC, CENTRAL, OPTIMISTIC)


def parts(
  cost: costs.Cost,
  topology: chips.Slice,
  rule: Rule,
  slots: live.Live | None = None,
) -> Mapping[str, float]:
  """Seconds of each of PARTS, their sum being the estimate.

  Args:
    cost: of a program, or a step.
    topology: the chips.
    rule: how to price it.
    slots: what they are busy with; needed where a kernel reads blocks of KV.
  """
  clock, bandwidth = topology.clock, topology.chip.hbm_bandwidth
  seconds = dict.fromkeys(PARTS, 0.0)
  for kind, cycles in cost.cycles.items():
    streams = kind in (costs.ELEMENTWISE, costs.COPIES)
    share = rule.streaming if streams else 1.0
    seconds[kind] += share * cycles / clock
  for call in cost.kernels:
    bundles = (call.bundles or 0) / clock
    each = max(bundles, call.bytes / bandwidth)
    for block in call.blocks:
      if slots is None:
        raise ValueError(
          f'the kernel {call.name!r} reads what its slots have; say what they'
          ' are busy with.'
        )
      of_block = max(block.bundles / clock, block.bytes / bandwidth)
      each += slots.blocks(block) * of_block
    seconds[KERNELS] += call.count * each
  seconds[OTHERS] = (
    cost.uncosted_bytes / bandwidth + cost.uncosted * rule.launch
  )
  work = sum(seconds.values())
  seconds[MEMORY] = max(0.0, cost.hbm_bytes / bandwidth - work)
  exchange = sum(
    c.count * collective_seconds(c, topology, rule.link)
    for c in cost.collectives
  )
  if rule.overlap:
    exchange = max(0.0, exchange - work - seconds[MEMORY])
  seconds[EXCHANGE] = exchange
  return seconds


def seconds(
  cost: costs.Cost,
  topology: chips.Slice,
  rule: Rule,
  slots: live.Live | None = None,
) -> float:
  """The estimate. Arguments as of `parts`."""
  return sum(parts(cost, topology, rule, slots).values())


def collective_seconds(
  collective: costs.Collective, topology: chips.Slice, share: float
) -> float:
  """One exchange among all chips or along an axis, by a ring in both directions.

  A ring passes each part of the data on in n - 1 steps, half of it in each
  direction, and so takes (n - 1) / n * bytes / (2 links); an all-reduce goes
  round twice. n chips of a slice form a ring as they are (2x2, 2x4).

  Args:
    collective: what is exchanged.
    topology: which links there are.
    share: of a link's bandwidth that is reached.
  """
  n = collective.group
  if n == 1:
    return 0.0
  links = 2 * topology.link * share
  rounds = 2 if collective.kind == 'all-reduce' else 1
  if collective.kind == 'collective-permute':
    return collective.bytes / (topology.link * share) + _HOP
  if collective.kind == 'all-to-all':
    # What a chip sends goes a quarter of the ring's way on average.
    return collective.bytes * n / 4 / links + n // 2 * _HOP
  moved = rounds * (n - 1) / n * collective.bytes / links
  return moved + rounds * (n - 1) * _HOP
