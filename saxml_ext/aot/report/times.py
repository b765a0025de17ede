"""Times of a set's programs by a rule, as the simulations of serving ask them."""

from collections.abc import Mapping
import dataclasses
import functools

from saxml_ext.aot.report import chips
from saxml_ext.aot.report import lengths as lengths_lib
from saxml_ext.aot.report import live
from saxml_ext.aot.report import rules
from saxml_ext.aot.report.compiled import costs


@dataclasses.dataclass(frozen=True)
class Prefill:
  """rows: prompts together; length: tokens of each, padded."""

  rows: int
  length: int


@dataclasses.dataclass(frozen=True)
class Times:
  """Seconds, all of them estimates.

  Attributes:
    prefills: by rows and length, of the programs that were compiled.
    call: of a call of decoding, whatever its steps.
    step: of one step of decoding.
    host: The seconds of the host per call of decoding, in which the chips wait.
  """

  prefills: Mapping[Prefill, float]
  call: float
  step: float
  host: float = 0.0

  @functools.cached_property
  def rows(self) -> tuple[int, ...]:
    return tuple(sorted({p.rows for p in self.prefills}))

  def prefill(self, rows: int, length: int) -> float:
    """Seconds of one prefill; between compiled lengths in proportion.

    Beyond them the nearest one is scaled by length.
    """
    known = {p.length: s for p, s in self.prefills.items() if p.rows == rows}
    lengths = sorted(known)
    if length in known:
      return known[length]
    below = [n for n in lengths if n < length]
    above = [n for n in lengths if n > length]
    if below and above:
      a, b = below[-1], above[0]
      share = (length - a) / (b - a)
      return known[a] + share * (known[b] - known[a])
    nearest = below[-1] if below else above[0]
    return known[nearest] * length / nearest


def of(
  programs: costs.Set, rule: rules.Rule, requests: lengths_lib.Lengths
) -> Times:
  """Times of a set.

  Args:
    programs: the set.
    rule: how to price it.
    requests: what all of its slots are busy with.

  Raises:
    ValueError: it has no prefill, or not one decode program.
  """
  topology = chips.of(programs.topology)
  slots = live.of(programs, requests)
  prefills = {
    Prefill(*size): rules.seconds(program.once, topology, rule, slots)
    for size, program in programs.prefills.items()
  }
  decode = programs.programs.get(f'decode {programs.slots}')
  if not prefills or decode is None or decode.step is None:
    raise ValueError(
      f'the costs of {programs.title!r} are of the programs'
      f' {sorted(programs.programs)}; an estimate of samples/s needs decode'
      f' {programs.slots} with its loop, and at least one prefill_and_insert.'
    )
  return Times(
    prefills,
    rules.seconds(decode.once, topology, rule, slots),
    rules.seconds(decode.step, topology, rule, slots),
    rule.host,
  )
