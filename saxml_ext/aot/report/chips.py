"""What the estimates need to know of a chip.

Sources: bandwidths and peaks are those of Google's page "TPU v5e"
(https://docs.cloud.google.com/tpu/docs/v5e, read in 2026). The clock is the
peak over what the matrix units do in a cycle: 197e12 / (4 units * 128 * 128 * 2
operations) = 1.5e9; XLA's estimates of cycles are of this clock, for its own
roofline of a product (2 n^3 / 197e12 s) and its cycles agree by it.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Chip:
  """A kind of TPU.

  Attributes:
    clock: cycles per second, of XLA's estimates.
    bf16: peak operations per second of bfloat16 products.
    int8: of int8 products.
    hbm: bytes of memory that XLA lets a program use.
    hbm_bandwidth: bytes per second.
    link: bytes per second from a chip to one neighbour, one direction.
  """

  clock: float
  bf16: float
  int8: float
  hbm: float
  hbm_bandwidth: float
  link: float


@dataclasses.dataclass(frozen=True)
class Topology:
  """Chips that serve a model together.

  Attributes:
    chip: their kind.
    shape: chips along each axis of the slice.
  """

  chip: Chip
  shape: tuple[int, ...]


_V5E = Chip(
  clock=1.5e9,
  bf16=197e12,
  int8=394e12,
  hbm=15.75 * 2**30,
  hbm_bandwidth=819e9,
  # 400e9 over four links of two directions each.
  link=50e9,
)

TOPOLOGIES = {
  'v5e 1x1': Topology(_V5E, (1, 1)),
  'v5e 2x2': Topology(_V5E, (2, 2)),
  'v5e 2x4': Topology(_V5E, (2, 4)),
}


def topology(name: str) -> Topology:
  """The slice of this name.

  Raises:
    ValueError: nothing is known of it.
  """
  if name not in TOPOLOGIES:
    raise ValueError(
      f'the costs are of programs for {name!r}; clocks and links are known of'
      f' {", ".join(map(repr, TOPOLOGIES))}. Add it to'
      ' saxml_ext/aot/report/chips.py.'
    )
  return TOPOLOGIES[name]
