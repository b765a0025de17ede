"""Replaces the module pynvml with a driver with any number of devices."""

import types


class NVMLError(Exception):
  pass


class NVMLError_LibraryNotFound(NVMLError):  # pylint: disable=invalid-name
  pass


class NVMLError_DriverNotLoaded(NVMLError):  # pylint: disable=invalid-name
  pass


class NVMLError_FunctionNotFound(NVMLError):  # pylint: disable=invalid-name
  pass


class NVMLError_NotSupported(NVMLError):  # pylint: disable=invalid-name
  pass


class FakeNvml:
  """The functions and classes of pynvml that the harness uses.

  Attributes:
    running: The number of initializations that were not shut down.
    energy_mj: The value of the energy counter, or None if the device has none.
    power_mw: The power of the device, or None if the device does not report it.
  """

  NVML_CLOCK_GRAPHICS = 0
  NVML_CLOCK_MEM = 2
  NVMLError = NVMLError
  NVMLError_LibraryNotFound = NVMLError_LibraryNotFound
  NVMLError_DriverNotLoaded = NVMLError_DriverNotLoaded
  NVMLError_FunctionNotFound = NVMLError_FunctionNotFound
  NVMLError_NotSupported = NVMLError_NotSupported

  def __init__(self, devices: int = 1, error: Exception | None = None):
    """Creates the driver.

    Args:
      devices: The number of devices.
      error: The exception that nvmlInit raises, or None.
    """
    self._devices = devices
    self._error = error
    self.running = 0
    self.energy_mj: int | None = 1_000_000
    self.power_mw: int | None = 250_000

  def nvmlInit(self) -> None:  # pylint: disable=invalid-name
    if self._error:
      raise self._error
    self.running += 1

  def nvmlShutdown(self) -> None:  # pylint: disable=invalid-name
    self.running -= 1

  def __getattr__(self, name: str):
    answers = {
      'nvmlSystemGetDriverVersion': lambda: b'550.54',
      'nvmlSystemGetCudaDriverVersion': lambda: 12040,
      'nvmlDeviceGetCount': lambda: self._devices,
      'nvmlDeviceGetHandleByIndex': lambda index: index,
      'nvmlDeviceGetName': lambda handle: 'NVIDIA H200',
      'nvmlDeviceGetMemoryInfo': lambda handle: types.SimpleNamespace(
        total=150_754_820_096
      ),
      'nvmlDeviceGetCudaComputeCapability': lambda handle: (9, 0),
      'nvmlDeviceGetMaxClockInfo': lambda handle, kind: {0: 1980, 2: 3201}[
        kind
      ],
      'nvmlDeviceGetMaxPcieLinkGeneration': lambda handle: 5,
      'nvmlDeviceGetMaxPcieLinkWidth': lambda handle: 16,
      'nvmlDeviceGetEnforcedPowerLimit': _unsupported,
      'nvmlDeviceGetTotalEnergyConsumption': lambda handle: _known(
        self.energy_mj
      ),
      'nvmlDeviceGetPowerUsage': lambda handle: _known(self.power_mw),
    }
    if name not in answers or not self.running:
      raise AttributeError(name)
    return answers[name]


def _unsupported(unused_handle) -> None:
  raise NVMLError_NotSupported('Not Supported')


def _known(value: int | None) -> int:
  if value is None:
    raise NVMLError_NotSupported('Not Supported')
  return value
