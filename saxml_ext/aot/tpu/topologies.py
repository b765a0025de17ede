"""The TPU slices that programs are compiled for, and what a chip of them is.

One table, read by the compiler of program sets and by the estimates of speed.

Sources. Peaks, bandwidths: Google's pages "TPU v5e", "TPU v5p", "TPU v6e" and
"TPU7x (Ironwood)" below https://docs.cloud.google.com/tpu/docs (v5e, v5p, v6e,
tpu7x), read in 2026. Where a page gives no int8 figure (v5p): the table of
jax/_src/pallas/mosaic/tpu_info.py in JAX 0.10.2, whose v5p row is 918 TOP/s; no
source has one for TPU7x. Usable memory: what XLA's compiler (libtpu 0.0.42)
names in "exceeds available HBM" when a program is too large for the topology;
`libtpu_test.py` reads it off again. It is less than what the pages give, because
the runtime keeps some for itself.
"""

from collections.abc import Mapping
import dataclasses
import math

import jax
from jax.experimental import topologies


@dataclasses.dataclass(frozen=True)
class Chip:
  """One kind of TPU. All figures are of a chip, whatever its cores.

  Attributes:
    kind: `device_kind` of its JAX devices.
    devices: JAX devices of a chip: 2 where each of its two cores is one.
    hbm: bytes of memory of one device that XLA lets programs use.
    bf16: peak operations per second of bfloat16 products, an addition and a
      multiplication counting as two.
    int8: the same of int8 products; None: not published.
    hbm_bandwidth: bytes per second.
    ici_bandwidth: bytes per second to all of its neighbours together, both
      directions added.
    ici_ports: links to neighbours in a whole torus; a link carries
      `ici_bandwidth / ici_ports / 2` in one direction.
  """

  kind: str
  devices: int
  hbm: int
  bf16: float
  int8: float | None
  hbm_bandwidth: float
  ici_bandwidth: float
  ici_ports: int


_GIB = 2**30

V5E = Chip(
  kind='TPU v5 lite',
  devices=1,
  hbm=int(15.75 * _GIB),
  bf16=197e12,
  int8=393e12,
  hbm_bandwidth=819e9,
  ici_bandwidth=400e9,
  ici_ports=4,
)
V6E = Chip(
  kind='TPU v6 lite',
  devices=1,
  hbm=int(31.25 * _GIB),
  bf16=918e12,
  int8=1836e12,
  hbm_bandwidth=1638e9,
  ici_bandwidth=800e9,
  ici_ports=4,
)
# Two cores, which work as one device.
V5P = Chip(
  kind='TPU v5',
  devices=1,
  hbm=int(95.74 * _GIB),
  bf16=459e12,
  int8=918e12,
  hbm_bandwidth=2765e9,
  ici_bandwidth=1200e9,
  ici_ports=6,
)
# Two cores with half of the memory each, which are two devices.
V7X = Chip(
  kind='TPU7x',
  devices=2,
  hbm=int(94.75 * _GIB),
  bf16=2307e12,
  int8=None,
  hbm_bandwidth=7380e9,
  ici_bandwidth=1200e9,
  ici_ports=6,
)


@dataclasses.dataclass(frozen=True)
class Topology:
  """A slice of a TPU pod.

  Attributes:
    name: ours, which is part of the names of program sets.
    libtpu: what libtpu calls it.
    chip: what its chips are.
    shape: chips along x, y and z.
    host: chips of one host along x, y and z.
    mesh: [replica, data, model], as in ICI_MESH_SHAPE, unless serving params
      ask for another.
  """

  name: str
  libtpu: str
  chip: Chip
  shape: tuple[int, int, int]
  host: tuple[int, int, int]
  mesh: tuple[int, int, int]

  @property
  def chips(self) -> int:
    return math.prod(self.shape)

  @property
  def devices(self) -> int:
    return self.chips * self.chip.devices

  @property
  def hosts(self) -> int:
    return self.chips // math.prod(self.host)

  def describe(self) -> tuple[jax.Device, ...]:
    """Its devices, which can be compiled for; none of them needs to be there.

    Raises:
      RuntimeError: libtpu cannot be loaded, or does not know the topology.
    """
    try:
      found = topologies.get_topology_desc(
        platform='tpu',
        topology_name=self.libtpu,
        chips_per_host_bounds=self.host,
        num_slices=1,
      )
    except Exception as e:  # JAX lets through whatever a plugin raises.
      raise RuntimeError(
        f'libtpu does not describe {self.name} ({self.libtpu}): {e}. Is libtpu'
        ' installed, and of the locked version?'
      ) from e
    return tuple(found.devices)


def _topology(
  generation: str,
  chip: Chip,
  shape: tuple[int, ...],
  host: tuple[int, int, int] | None = None,
  mesh: tuple[int, int, int] | None = None,
) -> Topology:
  whole = (*shape, *(1,) * (3 - len(shape)))
  size = 'x'.join(map(str, shape))
  flat = size.removesuffix('x1') if len(shape) == 3 else size
  # libtpu calls the seventh generation by the product's name.
  libtpu = {'v7x': 'tpu7x'}.get(generation, generation)
  return Topology(
    name=f'{generation}_{flat}',
    libtpu=f'{libtpu}:{size}',
    chip=chip,
    shape=(whole[0], whole[1], whole[2]),
    host=host or (whole[0], whole[1], whole[2]),
    mesh=mesh or (1, 1, math.prod(shape) * chip.devices),
  )


BY_NAME: Mapping[str, Topology] = {
  t.name: t
  for t in (
    _topology('v5e', V5E, (1, 1)),
    _topology('v5e', V5E, (2, 2)),
    _topology('v5e', V5E, (2, 4)),
    _topology('v5e', V5E, (4, 4), host=(2, 2, 1), mesh=(1, 4, 4)),
    _topology('v5e', V5E, (4, 8), host=(2, 2, 1), mesh=(1, 2, 16)),
    _topology('v6e', V6E, (1, 1)),
    _topology('v6e', V6E, (2, 2)),
    _topology('v6e', V6E, (2, 4)),
    _topology('v6e', V6E, (4, 4), host=(2, 2, 1)),
    _topology('v5p', V5P, (1, 1, 1)),
    _topology('v5p', V5P, (2, 2, 1)),
    _topology('v5p', V5P, (2, 2, 2), host=(2, 2, 1)),
    _topology('v7x', V7X, (1, 1, 1)),
    _topology('v7x', V7X, (2, 2, 1)),
  )
}


def find(name: str) -> Topology:
  """The topology of this name.

  Raises:
    ValueError: there is none; the message lists all.
  """
  if name not in BY_NAME:
    raise ValueError(
      f'there is no topology {name!r}; choose one of {", ".join(BY_NAME)}.'
    )
  return BY_NAME[name]
