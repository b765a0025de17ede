"""What the estimates need to know of a slice of TPUs.

Peaks and bandwidths are those of `aot/tpu/topologies.py`. XLA's estimates of
cycles are of the chip's clock, which no page of Google's gives: for v5e it is
the peak over what the matrix units do in a cycle, 197e12 / (4 units * 128 * 128
* 2 operations) = 1.5e9, and XLA's own roofline of a product (2 n^3 / 197e12 s)
agrees with its cycles by it. Of other chips it is not known.
"""

from collections.abc import Mapping
import dataclasses

from saxml_ext.aot.tpu import topologies

_CLOCKS: Mapping[str, float] = {topologies.V5E.kind: 1.5e9}


@dataclasses.dataclass(frozen=True)
class Slice:
  """Chips that serve a model together.

  Attributes:
    clock: cycles per second, of XLA's estimates.
    chip: their kind.
    count: of the chips.
    int8: operations per second of a chip's int8 products.
    link: bytes per second from a chip to one neighbour, one direction.
  """

  clock: float
  chip: topologies.Chip
  count: int
  int8: float
  link: float


def of(name: str) -> Slice:
  """The slice of this name, such as "v5e 2x2".

  Raises:
    ValueError: not all that the estimates need is known of it.
  """
  found = topologies.find(name.replace(' ', '_'))
  chip = found.chip
  if chip.kind not in _CLOCKS or chip.int8 is None:
    raise ValueError(
      f'the clock of {chip.kind} ({name}), which XLA counts cycles of, is not'
      f' known; it is of {", ".join(_CLOCKS)}. Add it to'
      ' saxml_ext/aot/report/chips.py with its source.'
    )
  return Slice(
    _CLOCKS[chip.kind],
    chip,
    found.chips,
    chip.int8,
    chip.ici_bandwidth / chip.ici_ports / 2,
  )
