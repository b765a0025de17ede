"""What NVIDIA's driver says of its devices, and which libraries are there."""

import ctypes
import dataclasses
import importlib.metadata
import importlib.util
from typing import Any

from harness import errors

# Names that the libraries and their Python packages have had.
_MAJORS = ('cu13', 'cu12', 'cu11')
_CUDNN_PACKAGES = tuple(f'nvidia-cudnn-{major}' for major in _MAJORS)
_TENSORRT_PACKAGES = ('tensorrt', *(f'tensorrt-{major}' for major in _MAJORS))
_CUDNN_LIBRARIES = ('libcudnn.so.9', 'libcudnn.so.8', 'libcudnn.so')
_TENSORRT_LIBRARIES = ('libnvinfer.so.10', 'libnvinfer.so.8', 'libnvinfer.so')


class CudaError(errors.HarnessError):
  """There is a driver, and it does not answer."""


@dataclasses.dataclass(frozen=True)
class Device:
  """A CUDA device; None stands for what the driver does not tell.

  Attributes:
    index: of the device in the driver's order.
    name: such as "NVIDIA H200".
    memory_bytes: all of its own memory; a device that shares the CPU's has
      none.
    compute_capability: such as "9.0".
    max_graphics_clock_mhz: of its processors.
    max_memory_clock_mhz: of its memory.
    pcie_generation: highest that device and slot both have.
    pcie_width: lanes that device and slot both have.
    power_limit_watts: that is enforced.
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
  """CUDA on a machine.

  Attributes:
    driver: version of NVIDIA's driver; None without one.
    cuda: newest version of CUDA that the driver runs, such as "12.4".
    cudnn: version of cuDNN; None where none is found.
    tensorrt: version of TensorRT; None where none is found.
    devices: in the driver's order.
  """

  driver: str | None = None
  cuda: str | None = None
  cudnn: str | None = None
  tensorrt: str | None = None
  devices: tuple[Device, ...] = ()


def detect(nvml: Any = None) -> Cuda:
  """Asks the driver and looks for the libraries.

  Args:
    nvml: the module pynvml, or what stands for it in a test.

  Raises:
    CudaError: there is a driver, and it does not answer.
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


def load_nvml() -> Any:
  """The module pynvml; None where it is not installed."""
  if importlib.util.find_spec('pynvml') is None:
    return None
  import pynvml  # pylint: disable=g-import-not-at-top

  return pynvml


def cudnn_version() -> str | None:
  """Version of cuDNN, as a Python package or a library; None without one."""
  if version := _package(_CUDNN_PACKAGES):
    return version
  number = _call(_CUDNN_LIBRARIES, 'cudnnGetVersion', ctypes.c_size_t)
  # 8907 is 8.9.7; from 9.0 on, 90100 is 9.1.0 (cudnn_version.h).
  return _dotted(number, wide_from=90000)


def tensorrt_version() -> str | None:
  """Version of TensorRT, as a Python package or a library; None without."""
  if version := _package(_TENSORRT_PACKAGES):
    return version
  number = _call(_TENSORRT_LIBRARIES, 'getInferLibVersion', ctypes.c_int32)
  # 8601 is 8.6.1; from 10.0 on, 100200 is 10.2.0 (NvInferRuntimeBase.h).
  return _dotted(number, wide_from=100000)


def _device(nvml: Any, index: int) -> Device:
  handle = nvml.nvmlDeviceGetHandleByIndex(index)

  def ask(function: str, *arguments: Any) -> Any:
    try:
      return getattr(nvml, function)(handle, *arguments)
    except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound):
      return None  # Not every device, or older driver, knows everything.

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
    f"NVIDIA's driver does not answer ({error}); see what `nvidia-smi` says:"
    ' after an update of the driver the machine may have to be restarted'
  )


def _text(value: bytes | str) -> str:
  """Older versions of pynvml give bytes."""
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
  """What a function of the first of the libraries that is there returns."""
  for name in libraries:
    try:
      called = getattr(ctypes.CDLL(name), function)
    except (OSError, AttributeError):
      continue  # Not installed: the next name.
    called.restype = result
    return called()
  return None


def _dotted(number: int | None, wide_from: int) -> str | None:
  """A version that is one number, whose major part has moved one digit up."""
  if number is None:
    return None
  major = 10000 if number >= wide_from else 1000
  return f'{number // major}.{number % major // 100}.{number % 100}'
