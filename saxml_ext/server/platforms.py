"""Describes the machine of a model server for its cell."""

from collections.abc import Sequence
import re

from absl import logging
import jax
import psutil

from saxml_ext.common import errors
from saxml_ext.protobuf import admin_pb2

_Server = admin_pb2.ModelServer
_CHIPS = {
  'cpu': _Server.CHIP_TYPE_CPU,
  'tpuv2': _Server.CHIP_TYPE_TPU_V2,
  'tpuv3': _Server.CHIP_TYPE_TPU_V3,
  'tpuv4': _Server.CHIP_TYPE_TPU_V4,
  'tpuv4i': _Server.CHIP_TYPE_TPU_V4I,
  'tpuv5e': _Server.CHIP_TYPE_TPU_V5E,
  'tpuv6e': _Server.CHIP_TYPE_TPU_V6E,
  'p100': _Server.CHIP_TYPE_GPU_P100,
  'v100': _Server.CHIP_TYPE_GPU_V100,
  't4': _Server.CHIP_TYPE_GPU_T4,
  'l4': _Server.CHIP_TYPE_GPU_L4,
  'a100': _Server.CHIP_TYPE_GPU_A100,
  'h100': _Server.CHIP_TYPE_GPU_H100,
  'h200': _Server.CHIP_TYPE_GPU_H200,
}
_FLAT = (
  _Server.CHIP_TYPE_TPU_V2,
  _Server.CHIP_TYPE_TPU_V3,
  _Server.CHIP_TYPE_TPU_V5E,
  _Server.CHIP_TYPE_TPU_V6E,
)
# Google Cloud's names of TPUs, with or without the size of a slice, such as
# v5e-4, v5litepod-8 and tpu-v4-8. In the API, "lite" stands for the e of v5e.
_TPU = re.compile(r'(?:tpu[-_]?)?v(\d+)(lite(?:pod)?|e|i)?(?:-\d+)?')
_TWIST = re.compile(r'_(un)?twisted$')


def chip_type(name: str | None) -> _Server.ChipType:
  """Returns the chip's number on the wire; 0, with a warning, if unknown.

  Args:
    name: The name of the chip. It is Sax's name, such as tpuv5e, or Google
      Cloud's name of a TPU, such as v5e-4 or v5litepod-4. The size of a slice
      is ignored. None stands for the chip that JAX uses.
  """
  if name is None:
    return chip_of(jax.devices()[0])
  plain = name.lower()
  if match := _TPU.fullmatch(plain):
    generation, kind = match.groups(default='')
    plain = f'tpuv{generation}{"e" if kind.startswith("lite") else kind}'
  value = _CHIPS.get(plain)
  if value is None:
    logging.warning(
      '--platform_chip=%s is not known, so this server reports an unknown'
      ' chip. Known: %s, and TPU names such as v5e-4 or v5litepod-8.',
      name,
      ', '.join(_CHIPS),
    )
    return _Server.CHIP_TYPE_UNKNOWN
  return value


def chip_topology(name: str | None) -> _Server.ChipTopology:
  """Returns the topology's number on the wire, such as that of "2x2x1".

  Args:
    name: The name of the topology; None stands for that of JAX's chips.

  Raises:
    errors.InvalidArgument: The topology is not known.
  """
  if name is None:
    return topology_of(jax.devices())
  plain = _TWIST.sub('', name.lower())
  values = _Server.ChipTopology
  key = f'CHIP_TOPOLOGY_{plain.upper()}'
  if key not in values.keys() or plain == 'unknown':
    known = ', '.join(
      k.removeprefix('CHIP_TOPOLOGY_').lower()
      for k in values.keys()
      if not k.endswith('UNKNOWN')
    )
    raise errors.InvalidArgument(
      f'--platform_topology={name} is not known. Available: {known}'
    )
  return values.Value(key)


def chip_of(device: jax.Device) -> _Server.ChipType:
  """Returns the number on the wire of JAX's device; 0 for an unknown one."""
  if device.platform == 'cpu':
    return _Server.CHIP_TYPE_CPU
  # Examples are "TPU v5 lite", "TPU v4", "NVIDIA A100-SXM4-80GB" and "Tesla
  # T4".
  words = re.split(r'[ -]', device.device_kind.lower())
  if device.platform == 'tpu':
    words = [''.join(words).replace('v4lite', 'v4i').replace('lite', 'e')]
  names = [word for word in words if word in _CHIPS]
  if not names:
    logging.info(
      'Sax has no chip type for %s, so this server reports an unknown chip',
      device.device_kind,
    )
    return _Server.CHIP_TYPE_UNKNOWN
  return _CHIPS[names[0]]


def topology_of(devices: Sequence[jax.Device]) -> _Server.ChipTopology:
  """Returns the number on the wire of a topology; 0 for an unknown one.

  Args:
    devices: All devices that a program uses. TPU chips report their positions
      in the torus; other devices form a row. The devices of a CPU are one chip.
  """
  if devices[0].platform == 'cpu':
    return _Server.CHIP_TOPOLOGY_1
  name = str(len(devices))
  if devices[0].platform == 'tpu':
    sizes = [max(axis) + 1 for axis in zip(*(d.coords for d in devices))]
    # The torus of TPU v2, v3, v5e and v6e has two dimensions.
    flat = chip_of(devices[0]) in _FLAT
    name = 'x'.join(map(str, sizes[:2] if flat else sizes))
  key = f'CHIP_TOPOLOGY_{name.upper()}'
  if key not in _Server.ChipTopology.keys():
    return _Server.CHIP_TOPOLOGY_UNKNOWN
  return _Server.ChipTopology.Value(key)


def memory_bytes(hosts: Sequence[str] = ()) -> int:
  """Returns the bytes for models: on all devices, or free on the hosts.

  Args:
    hosts: The host names of a group, one for each process. All hosts are
      assumed to be equal. It is empty if this process serves alone.
  """
  if stats := _memory_stats():
    return sum(s['bytes_limit'] for s in stats) * max(1, len(hosts))
  return psutil.virtual_memory().available * max(1, len(set(hosts)))


def free_bytes() -> int:
  """Returns the free bytes for another model, on all devices or the host."""
  stats = _memory_stats()
  if stats:
    return sum(s['bytes_limit'] - s.get('bytes_in_use', 0) for s in stats)
  return psutil.virtual_memory().available


def all_bytes() -> int:
  """Returns the total bytes of the devices or the host."""
  stats = _memory_stats()
  if stats:
    return sum(s['bytes_limit'] for s in stats)
  return psutil.virtual_memory().total


def _memory_stats() -> list[dict[str, int]]:
  """Returns the memory of each device; empty without device memory."""
  stats = [device.memory_stats() or {} for device in jax.local_devices()]
  return stats if all('bytes_limit' in values for values in stats) else []
