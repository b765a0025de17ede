"""What kind of machine a server says it is when it joins a cell."""

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
}
_TWIST = re.compile(r'_(un)?twisted$')


def chip_type(name: str) -> int:
  """The chip's number on the wire; 0, with a warning, for an unknown one."""
  value = _CHIPS.get(name.lower())
  if value is None:
    logging.warning(
        '--platform_chip=%s is none of %s; joining as an unknown chip',
        name,
        ', '.join(_CHIPS),
    )
    return _Server.CHIP_TYPE_UNKNOWN
  return value


def chip_topology(name: str) -> int:
  """The topology's number on the wire, such as that of "2x2x1".

  Raises:
    errors.InvalidArgument: the topology is not known.
  """
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
        f'--platform_topology={name} is not one of {known}'
    )
  return values.Value(key)


def memory_bytes() -> int:
  """Bytes that models may take here: of all devices, or free ones of the host."""
  limits = [
      (device.memory_stats() or {}).get('bytes_limit')
      for device in jax.local_devices()
  ]
  if limits and all(limits):
    return sum(limits)
  return psutil.virtual_memory().available
