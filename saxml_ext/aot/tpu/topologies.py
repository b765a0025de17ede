"""Describes the TPU slices and GPUs that programs are compiled for.

The usable memory is the limit in the message "exceeds available HBM" of XLA's
compiler (libtpu 0.0.42) for a program that is too large. `libtpu_test.py` reads
the limit again. It is lower than on Google's pages, because the runtime
reserves memory. On a GPU, it is the server's share of the memory.
"""

from collections.abc import Mapping
import dataclasses
from importlib import metadata
import math
import os
from typing import Any

import jax
from jax.experimental import topologies


@dataclasses.dataclass(frozen=True)
class Chip:
  """One kind of TPU or GPU.

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
  """A slice of a TPU pod, or one GPU.

  Attributes:
    name: Our name, which is part of the names of program sets.
    libtpu: The name in libtpu; "" for a GPU.
    chip: The kind of chip.
    shape: The number of chips along x, y and z.
    host: The number of one host's chips along x, y and z.
    mesh: The default mesh [replica, data, model] for ICI_MESH_SHAPE, unless the
      serving params set another.
    gpu: XLA's description of a GPU, as a protocol buffer in text; "" for a TPU.
  """

  name: str
  libtpu: str
  chip: Chip
  shape: tuple[int, int, int]
  host: tuple[int, int, int]
  mesh: tuple[int, int, int]
  gpu: str = ''

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
      RuntimeError: libtpu or JAX's plugin for CUDA cannot be loaded, or does
        not know the topology.
    """
    package = "JAX's plugin for CUDA 13" if self.gpu else 'libtpu'
    target = f'compile_{"gpu_" if self.gpu else ""}programs'
    options: dict[str, Any] = (
      {'target_config': self.gpu, 'topology': '1x1x1'}
      if self.gpu
      else {'chips_per_host_bounds': self.host, 'num_slices': 1}
    )
    try:
      description = topologies.get_topology_desc(
        platform='cuda' if self.gpu else 'tpu',
        topology_name=self.libtpu or self.name,
        **options,
      )
    except Exception as e:  # JAX passes on any error of a plugin.
      raise RuntimeError(
        f'{package} cannot describe {self.name}'
        f' ({self.libtpu or self.chip.kind}): {e}. Bazel installs {package} for'
        f' //saxml_ext/aot/tpu:{target}. Outside Bazel, install the locked'
        ' version.'
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

# XLA chooses kernels and tilings by these properties. They are those that the
# driver reports of an H100 with 80 GB.
_H100 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32
  shared_memory_per_block: 49152 shared_memory_per_block_optin: 232448
  shared_memory_per_core: 233472 threads_per_core_limit: 2048
  core_count: 132 fpus_per_core: 128 clock_rate_ghz: 1.98
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  memory_bandwidth: 3352320000000 l2_cache_size: 52428800
  device_memory_size: 84942979072 cuda_compute_capability { major: 9 }
}
platform_name: "CUDA" device_description_str: "NVIDIA H100 80GB HBM3"
dnn_version_info { major: 9 minor: 12 } runtime_version { major: 13 minor: 0 }
"""
# A server uses 92%; see `common/machine/gpu_memory.py`.
_H100_CHIP = Chip('NVIDIA H100 80GB HBM3', 1, int(0.92 * 84942979072))
_ONE = (1, 1, 1)
H100 = Topology('h100', '', _H100_CHIP, _ONE, _ONE, _ONE, _H100)
GPUS: Mapping[str, Topology] = {H100.name: H100}


def find(name: str) -> Topology:
  """Returns the topology with a name, such as "v5e_2x2" or "v5e 2x2".

  Raises:
    ValueError: There is no such topology. The message lists all of them.
  """
  name = name.replace(' ', '_')
  known = {**BY_NAME, **GPUS}
  if name not in known:
    raise ValueError(
      f'there is no topology {name!r}. Available: {", ".join(known)}'
    )
  return known[name]


def prepare() -> None:
  """Prepares this process to compile for devices that are not present.

  Call this function before any topology is described. Variables that are
  already set keep their values. Arrays of this process are on the CPU, even if
  there is a TPU or GPU. Programs that are compiled after this call contain no path or
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
