"""Lists the peak speeds of TPU chips.

Sources:

- Peaks and bandwidths: Google's pages "TPU v5e", "TPU v5p", "TPU v6e" and
  "TPU7x (Ironwood)" below https://docs.cloud.google.com/tpu/docs (v5e, v5p,
  v6e, tpu7x), read in 2026.
- int8 of v5p, which the page lacks: the table of
  jax/_src/pallas/mosaic/tpu_info.py in JAX 0.10.2, 918 TOP/s. No source has the
  int8 figure of TPU7x.
- Clock: Google does not publish it. For v5e it is the peak divided by the
  operations of the matrix units per cycle, 197e12 / (4 units * 128 * 128 * 2
  operations) = 1.5e9. At that rate, XLA's roofline of a product (2 n^3 / 197e12
  s) agrees with its cycles. For v6e it is 918e12 / (4 units * 256 * 256 * 2) =
  1.75e9. Google's page names two units, but two would need twice that rate.
"""

from collections.abc import Mapping
import dataclasses
import math

from saxml_ext.aot.tpu import topologies


@dataclasses.dataclass(frozen=True)
class Peaks:
  """The speeds of one kind of chip. All figures are per chip.

  Attributes:
    bf16: The peak operations per second of bfloat16 products. A multiplication
      and an addition count as two operations.
    int8: The peak operations per second of int8 products; NaN if it is not
      published.
    hbm_bandwidth: The bytes per second between the chip and its memory.
    ici_bandwidth: The bytes per second to all neighbors together, in both
      directions.
    ici_ports: The number of links to neighbors in a full torus.
    clock: The cycles per second in XLA's estimates; NaN if unknown.
  """

  bf16: float
  int8: float
  hbm_bandwidth: float
  ici_bandwidth: float
  ici_ports: int
  clock: float = math.nan

  @property
  def link(self) -> float:
    """The bytes per second from a chip to one neighbor, in one direction."""
    return self.ici_bandwidth / self.ici_ports / 2


# The columns are the attributes of Peaks, in order.
BY_CHIP: Mapping[topologies.Chip, Peaks] = {
  topologies.V5E: Peaks(197e12, 393e12, 819e9, 400e9, 4, 1.5e9),
  topologies.V6E: Peaks(918e12, 1836e12, 1638e9, 800e9, 4, 1.75e9),
  topologies.V5P: Peaks(459e12, 918e12, 2765e9, 1200e9, 6),
  topologies.V7X: Peaks(2307e12, math.nan, 7380e9, 1200e9, 6),
}
