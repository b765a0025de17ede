"""Which TPU chips are attached, by what can be seen without a network."""

from collections.abc import Mapping
import dataclasses
import re

from saxml_ext.common.machine import machine_files

# PCI ids, as jax/_src/hardware_utils.py has them.
_GOOGLE = '0x1ae0'
_CHIPS = {
  '0x0027': 'TPU v3',
  '0x005e': 'TPU v4',
  '0x0062': 'TPU v5p',
  '0x0063': 'TPU v5e',
  '0x006f': 'TPU v6e',
  '0x0076': 'TPU7x',
}
# What TPU VMs, GKE and Docker images set, such as v5litepod-4 or v6e-8.
_TYPE_VARIABLE = 'TPU_ACCELERATOR_TYPE'
_TYPE = re.compile(r'(v\d+)(litepod|e|p|i)?-\d+')
_NODES = ('/dev/accel[0-9]*', '/dev/vfio/[0-9]*')


@dataclasses.dataclass(frozen=True)
class Tpu:
  """TPU chips of this host.

  Attributes:
    model: such as "TPU v5e".
    chips: attached to this host, whatever a slice has besides.
  """

  model: str
  chips: int


def detect(
  files: machine_files.MachineFiles, environment: Mapping[str, str]
) -> Tpu | None:
  """The chips of this host; None without any.

  The PCI bus knows kind and number. In a container that does not show it, the
  variable TPU_ACCELERATOR_TYPE tells the kind and the device files the number.
  """
  models = [_CHIPS.get(device, '') for device in _devices(files)]
  models = [model for model in models if model]
  if models:
    return Tpu(models[0], len(models))
  match = _TYPE.fullmatch(environment.get(_TYPE_VARIABLE, ''))
  if not match:
    return None
  nodes = max(len(files.find(pattern)) for pattern in _NODES)
  if not nodes:
    return None
  kind = (match[2] or '').replace('litepod', 'e')
  return Tpu(f'TPU {match[1]}{kind}', nodes)


def _devices(files: machine_files.MachineFiles) -> list[str]:
  """PCI device ids of what Google made."""
  return [
    files.text(path.removesuffix('vendor') + 'device')
    for path in files.find('/sys/bus/pci/devices/*/vendor')
    if files.text(path) == _GOOGLE
  ]
