"""Detects NVIDIA devices and libraries, and describes accelerators."""

from collections.abc import Iterable
import ctypes
import dataclasses
import importlib.metadata
import importlib.util
from typing import Any

from harness import errors
from saxml_ext.common.machine import accelerators

# The suffixes of the libraries' Python packages, by version of CUDA.
_MAJORS = ('cu13', 'cu12', 'cu11')
_CUDNN_PACKAGES = tuple(f'nvidia-cudnn-{major}' for major in _MAJORS)
_TENSORRT_PACKAGES = ('tensorrt', *(f'tensorrt-{major}' for major in _MAJORS))
_CUDNN_LIBRARIES = ('libcudnn.so.9', 'libcudnn.so.8', 'libcudnn.so')
_TENSORRT_LIBRARIES = ('libnvinfer.so.10', 'libnvinfer.so.8', 'libnvinfer.so')

_DESCRIBED = (
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


class CudaError(errors.HarnessError):
  """The NVIDIA driver is installed but does not respond."""


@dataclasses.dataclass(frozen=True)
class Device:
  """A CUDA device. A field is None if the driver does not report it.

  Attributes:
    index: The index of the device in the driver's order.
    name: The name, such as "NVIDIA H200".
    memory_bytes: The size of the dedicated memory, or None if the device shares
      the CPU's memory.
    compute_capability: The compute capability, such as "9.0".
    max_graphics_clock_mhz: The maximum clock rate of the processors.
    max_memory_clock_mhz: The maximum clock rate of the memory.
    pcie_generation: The highest PCIe generation that both device and slot
      support.
    pcie_width: The number of PCIe lanes that both device and slot support.
    power_limit_watts: The enforced power limit.
  """

  index: int
  name: str
  memory_bytes: int | None = None
  compute_capability: str | None = None
  max_graphics_clock_mhz: int | None = None
  max_memory_clock_mhz: int | None = None
  pcie_generation: int | None = None
  pcie_width: int | None = None
  power_limit_watts: float | None = None


@dataclasses.dataclass(frozen=True)
class Cuda:
  """The CUDA installation of a machine.

  Attributes:
    driver: The version of NVIDIA's driver, or None without a driver.
    cuda: The newest version of CUDA that the driver supports, such as "12.4".
    cudnn: The version of cuDNN, or None if it is not installed.
    tensorrt: The version of TensorRT, or None if it is not installed.
    devices: The devices, in the driver's order.
  """

  driver: str | None = None
  cuda: str | None = None
  cudnn: str | None = None
  tensorrt: str | None = None
  devices: tuple[Device, ...] = ()


def detect(nvml: Any = None) -> Cuda:
  """Queries the driver and searches for the libraries.

  Args:
    nvml: The module pynvml, or a replacement in tests.

  Raises:
    CudaError: The driver is installed but does not respond.
  """
  libraries = Cuda(cudnn=cudnn_version(), tensorrt=tensorrt_version())
  nvml = nvml or load_nvml()
  if nvml is None:
    return libraries
  try:
    nvml.nvmlInit()
  except (nvml.NVMLError_LibraryNotFound, nvml.NVMLError_DriverNotLoaded):
    return libraries
  except nvml.NVMLError as error:
    raise CudaError(_broken(error)) from error
  try:
    version = nvml.nvmlSystemGetCudaDriverVersion()
    return dataclasses.replace(
      libraries,
      driver=_text(nvml.nvmlSystemGetDriverVersion()),
      cuda=f'{version // 1000}.{version % 1000 // 10}',
      devices=tuple(
        _device(nvml, index) for index in range(nvml.nvmlDeviceGetCount())
      ),
    )
  except nvml.NVMLError as error:
    raise CudaError(_broken(error)) from error
  finally:
    nvml.nvmlShutdown()


def describe_accelerators(
  cuda: Cuda, tpu: accelerators.Tpu | None
) -> dict[str, str]:
  """Returns the values of the description that refer to accelerators.

  Returns:
    The known values, by key. All are "N/A" if the machine has no accelerators.
  """
  if tpu is not None:
    return {
      'accelerators_per_node': str(tpu.chips),
      'accelerator_model_name': tpu.model,
    }
  if cuda.devices:
    return _cuda_devices(cuda.devices)
  return {'accelerators_per_node': '0'} | dict.fromkeys(_DESCRIBED, 'N/A')


def _cuda_devices(devices: tuple[Device, ...]) -> dict[str, str]:
  values = {
    'accelerators_per_node': str(len(devices)),
    'accelerator_model_name': _joined(device.name for device in devices),
    'accelerator_memory_capacity': _joined(
      f'{device.memory_bytes / _GIB:.0f} GiB'
      for device in devices
      if device.memory_bytes
    ),
    'accelerator_frequency': _joined(
      f'{device.max_graphics_clock_mhz} MHz (max)'
      for device in devices
      if device.max_graphics_clock_mhz
    ),
    'accelerator_host_interconnect': _joined(
      f'PCIe Gen{device.pcie_generation} x{device.pcie_width}'
      for device in devices
      if device.pcie_generation and device.pcie_width
    ),
  }
  if len(devices) == 1:
    values['accelerator_interconnect'] = 'N/A'
  return {key: value for key, value in values.items() if value}


def _joined(texts: Iterable[str]) -> str:
  return '; '.join(dict.fromkeys(texts))


def load_nvml() -> Any:
  """Returns the module pynvml, or None if it is not installed."""
  if importlib.util.find_spec('pynvml') is None:
    return None
  import pynvml  # pylint: disable=g-import-not-at-top

  return pynvml


def cudnn_version() -> str | None:
  """Returns the version of the cuDNN package or library, or None without it."""
  if version := _package(_CUDNN_PACKAGES):
    return version
  number = _call(_CUDNN_LIBRARIES, 'cudnnGetVersion', ctypes.c_size_t)
  # 8907 means 8.9.7. Since 9.0, 90100 means 9.1.0 (cudnn_version.h).
  return _dotted(number, wide_from=90000)


def tensorrt_version() -> str | None:
  """Returns the version of the TensorRT package or library, or None."""
  if version := _package(_TENSORRT_PACKAGES):
    return version
  number = _call(_TENSORRT_LIBRARIES, 'getInferLibVersion', ctypes.c_int32)
  # 8601 means 8.6.1. Since 10.0, 100200 means 10.2.0 (NvInferRuntimeBase.h).
  return _dotted(number, wide_from=100000)


def _device(nvml: Any, index: int) -> Device:
  handle = nvml.nvmlDeviceGetHandleByIndex(index)

  def ask(function: str, *arguments: Any) -> Any:
    try:
      return getattr(nvml, function)(handle, *arguments)
    except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound):
      return None  # Some devices and older drivers lack functions.

  capability = ask('nvmlDeviceGetCudaComputeCapability')
  memory = ask('nvmlDeviceGetMemoryInfo')
  limit = ask('nvmlDeviceGetEnforcedPowerLimit')
  return Device(
    index=index,
    name=_text(nvml.nvmlDeviceGetName(handle)),
    memory_bytes=memory and memory.total,
    compute_capability=capability and '.'.join(map(str, capability)),
    max_graphics_clock_mhz=ask(
      'nvmlDeviceGetMaxClockInfo', nvml.NVML_CLOCK_GRAPHICS
    ),
    max_memory_clock_mhz=ask('nvmlDeviceGetMaxClockInfo', nvml.NVML_CLOCK_MEM),
    pcie_generation=ask('nvmlDeviceGetMaxPcieLinkGeneration'),
    pcie_width=ask('nvmlDeviceGetMaxPcieLinkWidth'),
    power_limit_watts=None if limit is None else limit / 1000,
  )


def _broken(error: Exception) -> str:
  return (
    f"NVIDIA's driver does not respond ({error}). Run `nvidia-smi` for"
    ' details. After an update of the driver, the machine may need a restart'
  )


def _text(value: bytes | str) -> str:
  """Decodes a text, because older versions of pynvml return bytes."""
  return value.decode() if isinstance(value, bytes) else value


def _package(names: tuple[str, ...]) -> str | None:
  for name in names:
    try:
      return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
      continue
  return None


def _call(
  libraries: tuple[str, ...], function: str, result: type
) -> int | None:
  """Calls a function of the first library that is installed."""
  for name in libraries:
    try:
      called = getattr(ctypes.CDLL(name), function)
    except (OSError, AttributeError):
      continue  # The library is not installed.
    called.restype = result
    return called()
  return None


def _dotted(number: int | None, wide_from: int) -> str | None:
  """Formats an integer version as text, such as 90100 as "9.1.0".

  Args:
    number: The version, or None if it is unknown.
    wide_from: The first version whose major part counts 10000, not 1000.
  """
  if number is None:
    return None
  major = 10000 if number >= wide_from else 1000
  return f'{number // major}.{number % major // 100}.{number % 100}'
