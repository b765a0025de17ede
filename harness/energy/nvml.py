"""Energy of NVIDIA's devices, as the driver tells it."""

from collections.abc import Callable
from typing import Any

from harness.energy import counters

_MILLI = 1e-3


class Devices:
  """The devices of a machine; the driver is held until `close`.

  Attributes:
    sources: energy of each device: its counter where it has one (since Volta),
      else its power.
    problems: why there are none, or fewer.
  """

  def __init__(self, nvml: Any):
    """Asks the driver.

    Args:
      nvml: the module pynvml; None where it is not installed.
    """
    self.sources: list[counters.Source] = []
    self.problems: list[str] = []
    self._nvml = nvml
    self._held = False
    if nvml is None:
      return
    try:
      nvml.nvmlInit()
    except (nvml.NVMLError_LibraryNotFound, nvml.NVMLError_DriverNotLoaded):
      return  # A machine without such devices.
    except nvml.NVMLError as error:
      self.problems.append(f"NVIDIA's driver does not answer: {error}")
      return
    self._held = True
    try:
      count = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError as error:
      self.problems.append(f"NVIDIA's driver tells no devices: {error}")
      return
    for index in range(count):
      self._add(index)

  def close(self) -> None:
    if self._held:
      self._nvml.nvmlShutdown()
      self._held = False

  def _add(self, index: int) -> None:
    nvml, name = self._nvml, f'nvml:{index}'
    try:
      handle = nvml.nvmlDeviceGetHandleByIndex(index)
      try:
        nvml.nvmlDeviceGetTotalEnergyConsumption(handle)
      except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound):
        nvml.nvmlDeviceGetPowerUsage(handle)
        watts = self._reader(nvml.nvmlDeviceGetPowerUsage, handle)
        self.sources.append(counters.Power(name, lambda: watts() * _MILLI))
      else:
        self.sources.append(
          counters.Counter(
            name,
            self._reader(nvml.nvmlDeviceGetTotalEnergyConsumption, handle),
            _MILLI,
          )
        )
    except nvml.NVMLError as error:
      self.problems.append(f'{name} tells neither energy nor power: {error}')

  def _reader(
    self, function: Callable[[Any], int], handle: Any
  ) -> Callable[[], int]:
    """Calls the driver; its errors become OSErrors, as Source has them."""

    def read() -> int:
      try:
        return function(handle)
      except self._nvml.NVMLError as error:
        raise OSError(str(error)) from error

    return read
