"""Measures the energy that a machine uses during a block of code.

CPUs of Intel and AMD count their energy (RAPL). Linux exports the counters in
/sys/class/powercap (Documentation/power/powercap/powercap.rst). Since 2020,
only root can read them. NVIDIA devices have a counter since Volta. For older
devices, the driver reports only the power.
"""

from collections.abc import Callable
import functools
import pathlib
import re
import threading
import time
from typing import Any, TypeAlias

from harness.description import cuda
from saxml_ext.common.machine import machine_files

_NO_SOURCES = float('inf')
_ZONES = '/sys/class/powercap/intel-rapl:*'
# Matches the zone of a CPU or of the whole platform, or a zone within it.
_ZONE = re.compile(r'.*/intel-rapl:(\d+)(:\d+)?')
_MICRO, _MILLI = 1e-6, 1e-3


class Counter:
  """A counter of energy that wraps around to zero.

  Attributes:
    name: The name, such as "rapl:package-0".
    interval_secs: The longest time between two calls of `update`.
    joules: The energy since the first call of `update`.
  """

  # A package of 500 W fills a counter of 262 kJ in nine minutes.
  interval_secs = 10.0

  def __init__(
    self, name: str, read: Callable[[], int], unit_joules: float, size: int = 0
  ):
    """Creates a counter.

    Args:
      name: The name.
      read: The function that returns the counter's value.
      unit_joules: The energy of one unit.
      size: The value at which the counter wraps around; 0 if it never does.
    """
    self.name = name
    self.joules = 0.0
    self._read = read
    self._unit = unit_joules
    self._size = size
    self._last: int | None = None

  def update(self) -> None:
    """Reads the counter. The first call starts the measurement.

    Raises:
      OSError: The counter cannot be read.
    """
    value = self._read()
    if self._last is not None:
      step = value - self._last
      if step < 0 and self._size:
        step += self._size
      self.joules += step * self._unit
    self._last = value


class Power:
  """A power sensor that is read at intervals. The energy is the integral.

  The attributes are those of `Counter`.
  """

  interval_secs = 0.1

  def __init__(
    self,
    name: str,
    read: Callable[[], float],
    clock: Callable[[], float] = time.monotonic,
  ):
    """Creates a power sensor.

    Args:
      name: The name.
      read: The function that returns the power in watts.
      clock: The function that returns the time in seconds.
    """
    self.name = name
    self.joules = 0.0
    self._read = read
    self._clock = clock
    self._last: tuple[float, float] | None = None

  def update(self) -> None:
    now, watts = self._clock(), self._read()
    if self._last is not None:
      before, watts_before = self._last
      self.joules += (now - before) * (watts + watts_before) / 2
    self._last = now, watts


Source: TypeAlias = Counter | Power


class Meter:
  """Measures the energy of all available sources during a `with` block.

    with energy.Meter() as meter:
      work()
    print(meter.joules())

  The energy includes everything that runs on the machine during the block.

  Attributes:
    problems: The reasons why sources cannot be read. The list is empty on
      machines without any counters, such as most virtual machines.
  """

  def __init__(
    self, files: machine_files.MachineFiles | None = None, nvml: Any = None
  ):
    """Creates a meter. No source is read before the block starts.

    Args:
      files: The files of the machine.
      nvml: The module pynvml, or a replacement in tests.
    """
    self._files = files or machine_files.MachineFiles()
    self._nvml = nvml or cuda.load_nvml()
    self._sources: list[Source] = []
    self._stop = threading.Event()
    self._lock = threading.Lock()
    self.problems: list[str] = []

  def __enter__(self) -> 'Meter':
    sources, self.problems = find_counters(self._files)
    self._devices = _Devices(self._nvml)
    self._sources = [*sources, *self._devices.sources]
    self.problems += self._devices.problems
    self._update(self._sources)
    self._thread = threading.Thread(
      target=self._watch, name='energy', daemon=True
    )
    self._thread.start()
    return self

  def __exit__(self, *unused) -> None:
    self._stop.set()
    self._thread.join()
    self._update(self._sources)
    self._devices.close()

  def joules(self) -> dict[str, float]:
    """Returns the joules since the block started, by source.

    The measurement ends now, or at the end of the block.

    Returns:
      The joules, such as {"rapl:package-0": 812.5, "rapl:dram-0": 80.1,
      "nvml:0": 5000.0}; empty if no source can be read. No source includes
      another one.
    """
    with self._lock:
      return {source.name: source.joules for source in self._sources}

  def _watch(self) -> None:
    """Reads each source at its interval, before its counter wraps around."""
    due = {s.name: time.monotonic() + s.interval_secs for s in self._sources}
    while True:
      wait = min(due.values(), default=_NO_SOURCES) - time.monotonic()
      if self._stop.wait(None if wait == _NO_SOURCES else max(wait, 0)):
        return
      now = time.monotonic()
      late = [s for s in self._sources if due[s.name] <= now]
      self._update(late)
      for source in late:
        due[source.name] = now + source.interval_secs

  def _update(self, chosen: list[Source]) -> None:
    for source in list(chosen):
      with self._lock:
        try:
          source.update()
        except (OSError, ValueError) as error:
          # Remove the source, because a partial measurement would look
          # complete.
          self.problems.append(f'{source.name} was lost: {error}')
          self._sources.remove(source)


def find_counters(
  files: machine_files.MachineFiles,
) -> tuple[list[Source], list[str]]:
  """Returns the readable RAPL counters, and the reasons why others fail.

  No counter includes another one, so their values can be added. A package
  includes the CPU's cores. The zone "psys" of the whole platform includes the
  packages, and few machines have it. The memory (dram) is in neither of them.
  """
  sources: list[Source] = []
  problems = []
  for zone in files.find(_ZONES):
    name = _zone_name(zone, files.text(f'{zone}/name'))
    if name is None:
      continue
    path = pathlib.Path(files.path(f'{zone}/energy_uj'))
    size = files.number(f'{zone}/max_energy_range_uj') or 0
    try:
      _read(path)
    except PermissionError:
      problems.append(
        f'only root can read {path}. Allow others to read it with `sudo chmod'
        f' a+r {path}`, or run as root'
      )
    except (OSError, ValueError) as error:
      problems.append(f'{path} cannot be read: {error}')
    else:
      read = functools.partial(_read, path)
      sources.append(Counter(name, read, _MICRO, size))
  return sources, problems


def _zone_name(zone: str, label: str) -> str | None:
  """Returns the zone's name, or None if another zone includes its energy."""
  match = _ZONE.fullmatch(zone)
  if not match:
    return None
  if match[2] is None:
    return f'rapl:{label}' if label.startswith('package') else None
  return f'rapl:dram-{match[1]}' if label == 'dram' else None


def _read(path: pathlib.Path) -> int:
  return int(path.read_text('utf-8'))


class _Devices:
  """The NVIDIA devices of a machine. `close` releases the driver.

  Attributes:
    sources: The energy source of each device.
    problems: The reasons why devices are missing.
  """

  def __init__(self, nvml: Any):
    """Queries the driver.

    Args:
      nvml: The module pynvml, or None if it is not installed.
    """
    self.sources: list[Source] = []
    self.problems: list[str] = []
    self._nvml = nvml
    self._held = False
    if nvml is None:
      return
    try:
      nvml.nvmlInit()
    except (nvml.NVMLError_LibraryNotFound, nvml.NVMLError_DriverNotLoaded):
      return  # The machine has no such devices.
    except nvml.NVMLError as error:
      self.problems.append(f"NVIDIA's driver does not respond: {error}")
      return
    self._held = True
    try:
      count = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError as error:
      self.problems.append(
        f"NVIDIA's driver does not report its devices: {error}"
      )
      return
    for index in range(count):
      try:
        self.sources.append(self._source(index))
      except nvml.NVMLError as error:
        self.problems.append(
          f'nvml:{index} reports neither energy nor power: {error}'
        )

  def close(self) -> None:
    if self._held:
      self._nvml.nvmlShutdown()
      self._held = False

  def _source(self, index: int) -> Source:
    """Returns a device's energy counter, or its power sensor without one."""
    nvml, name = self._nvml, f'nvml:{index}'
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    energy = nvml.nvmlDeviceGetTotalEnergyConsumption
    power = nvml.nvmlDeviceGetPowerUsage
    try:
      energy(handle)
    except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound):
      power(handle)
      return Power(name, lambda: self._ask(power, handle) * _MILLI)
    return Counter(name, lambda: self._ask(energy, handle), _MILLI)

  def _ask(self, function: Callable[[Any], int], handle: Any) -> int:
    """Calls the driver and converts its errors to OSError."""
    try:
      return function(handle)
    except self._nvml.NVMLError as error:
      raise OSError(str(error)) from error
