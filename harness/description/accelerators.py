"""The accelerators of a machine as its description tells them."""

from collections.abc import Iterable

from harness.description import cuda as cuda_lib
from saxml_ext.common.machine import tpu as tpu_lib

_KEYS = (
  'accelerator_model_name',
  'accelerator_frequency',
  'accelerator_host_interconnect',
  'accelerator_interconnect',
  'accelerator_interconnect_topology',
  'accelerator_memory_capacity',
  'accelerator_memory_configuration',
  'accelerator_on-chip_memories',
)
_GIB = 2**30


def describe(cuda: cuda_lib.Cuda, tpu: tpu_lib.Tpu | None) -> dict[str, str]:
  """Values of the description that are about accelerators.

  Returns:
    Value by key; keys whose value is not known are left out. "N/A" for all of
    them where the machine has none.
  """
  if tpu is not None:
    return {
      'accelerators_per_node': str(tpu.chips),
      'accelerator_model_name': tpu.model,
    }
  if cuda.devices:
    return _cuda(cuda.devices)
  return {'accelerators_per_node': '0'} | dict.fromkeys(_KEYS, 'N/A')


def _cuda(devices: tuple[cuda_lib.Device, ...]) -> dict[str, str]:
  values = {
    'accelerators_per_node': str(len(devices)),
    'accelerator_model_name': _joined(each.name for each in devices),
    'accelerator_memory_capacity': _joined(
      f'{each.memory_bytes / _GIB:.0f} GiB'
      for each in devices
      if each.memory_bytes
    ),
    'accelerator_frequency': _joined(
      f'{each.max_graphics_clock_mhz} MHz (max)'
      for each in devices
      if each.max_graphics_clock_mhz
    ),
    'accelerator_host_interconnect': _joined(
      f'PCIe Gen{each.pcie_generation} x{each.pcie_width}'
      for each in devices
      if each.pcie_generation and each.pcie_width
    ),
  }
  if len(devices) == 1:
    values['accelerator_interconnect'] = 'N/A'
  return {key: value for key, value in values.items() if value}


def _joined(texts: Iterable[str]) -> str:
  return '; '.join(dict.fromkeys(texts))
