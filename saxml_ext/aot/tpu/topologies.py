"""Describes the TPU slices that programs are compiled for, and their chips.

The usable memory is the limit in the message "exceeds available HBM" of XLA's
compiler (libtpu 0.0.42) for a program that is too large. `libtpu_test.py` reads
the limit again. It is lower than on Google's pages, because the runtime
reserves memory.
"""

from collections.abc import Mapping
import dataclasses
from importlib import metadata
import math
import os

import jax
from jax.experimental import topologies


@dataclasses.dataclass(frozen=True)
class Chip:
  """One kind of TPU.

  Attributes:
    kind: The `device_kind` of its JAX devices.
    devices: The number of JAX devices per chip: 2 if each of the two cores is
      one.
    hbm: The bytes of one device's memory that XLA lets programs use.
  """

  kind: str
  devices: int
  hbm: int


_GIB = 2**30

# libtpu reads these variables when it is loaded. Without them, it asks the
# metadata server of a cloud machine for its place in a slice, writes one log
# file per process, and takes a lock that prevents other processes from
# compiling.
_ENVIRONMENT = {
  # This skips the query to the metadata server.
  'TPU_SKIP_MDS_QUERY': '1',
  # These two replace the answers of the metadata server. Any TPU type works,
  # because the topology determines the compilation target.
  'TPU_WORKER_HOSTNAMES': 'localhost',
  'TPU_ACCELERATOR_TYPE': 'v5litepod-4',
  # Without the lock file, several processes can compile at once.
  'ALLOW_MULTIPLE_LIBTPU_LOAD': '1',
  'TPU_LOG_DIR': 'disabled',
}

# The columns are the attributes of Chip, in order.
V5E = Chip('TPU v5 lite', 1, int(15.75 * _GIB))
V6E = Chip('TPU v6 lite', 1, int(31.25 * _GIB))
# The two cores act as one device.
V5P = Chip('TPU v5', 1, int(95.74 * _GIB))
# Each of the two cores is a device with half of the memory.
V7X = Chip('TPU7x', 2, int(94.75 * _GIB))


@dataclasses.dataclass(frozen=True)
class Topology:
  """A slice of a TPU pod.

  Attributes:
    name: Our name, which is part of the names of program sets.
    libtpu: The name in libtpu.
    chip: The kind of chip.
    shape: The number of chips along x, y and z.
    host: The number of one host's chips along x, y and z.
    mesh: The default mesh [replica, data, model] for ICI_MESH_SHAPE, unless the
      serving params set another.
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
    """Returns the slice's devices to compile for. They need not be present.

    Raises:
      RuntimeError: libtpu cannot be loaded, or does not know the topology.
    """
    try:
      description = topologies.get_topology_desc(
        platform='tpu',
        topology_name=self.libtpu,
        chips_per_host_bounds=self.host,
        num_slices=1,
      )
    except Exception as e:  # JAX passes on any error of a plugin.
      raise RuntimeError(
        f'libtpu cannot describe {self.name} ({self.libtpu}): {e}. Check that'
        ' libtpu is installed in the locked version.'
      ) from e
    return tuple(description.devices)


def _topology(
  generation: str,
  chip: Chip,
  shape: tuple[int, ...],
  host: tuple[int, int, int] | None = None,
  mesh: tuple[int, int, int] | None = None,
) -> Topology:
  x, y, z = (*shape, 1)[:3]
  size = 'x'.join(map(str, shape))
  flat = size.removesuffix('x1') if len(shape) == 3 else size
  # libtpu uses the product's name for the seventh generation.
  libtpu = 'tpu7x' if generation == 'v7x' else generation
  return Topology(
    name=f'{generation}_{flat}',
    libtpu=f'{libtpu}:{size}',
    chip=chip,
    shape=(x, y, z),
    host=host or (x, y, z),
    mesh=mesh or (1, 1, math.prod(shape) * chip.devices),
  )


_TOPOLOGIES = (
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
BY_NAME: Mapping[str, Topology] = {t.name: t for t in _TOPOLOGIES}


def find(name: str) -> Topology:
  """Returns the topology with a name, such as "v5e_2x2" or "v5e 2x2".

  Raises:
    ValueError: There is no such topology. The message lists all of them.
  """
  name = name.replace(' ', '_')
  if name not in BY_NAME:
    raise ValueError(
      f'there is no topology {name!r}. Available: {", ".join(BY_NAME)}'
    )
  return BY_NAME[name]


def prepare() -> None:
  """Prepares this process to compile for a Cloud TPU that is not present.

  Call this function before any topology is described. Variables that are
  already set keep their values. Arrays of this process are on the CPU, even if
  there is a TPU. Programs that are compiled after this call contain no path or
  line of a source file. Their bytes therefore do not depend on the location of
  the sources.
  """
  for name, value in _ENVIRONMENT.items():
    os.environ.setdefault(name, value)
  jax.config.update('jax_platforms', 'cpu')
  jax.config.update('jax_traceback_in_locations_limit', 0)


def compiler() -> str:
  """Returns the version of XLA's compiler for TPU."""
  return f'libtpu {metadata.version("libtpu")}, JAX {jax.__version__}'
