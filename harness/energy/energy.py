"""The energy that a machine needs while something runs."""

import threading
import time
from typing import Any

from harness.description import cuda
from harness.energy import counters
from harness.energy import nvml as nvml_lib
from harness.energy import rapl
from saxml_ext.common.machine import machine_files

_NO_SOURCES = float('inf')


class Meter:
  """Measures during a `with` block what can be measured.

    with energy.Meter() as meter:
      work()
    print(meter.joules())

  It counts all that the machine does meanwhile, whoever does it.

  Attributes:
    problems: why something cannot be read. Empty on machines that just have no
      counters, as most virtual ones.
  """

  def __init__(
    self,
    files: machine_files.MachineFiles | None = None,
    nvml: Any = None,
  ):
    """Creates it; nothing is read before the block begins.

    Args:
      files: of the machine.
      nvml: the module pynvml, or what stands for it in a test.
    """
    self._files = files or machine_files.MachineFiles()
    self._nvml = nvml or cuda.load_nvml()
    self._sources: list[counters.Source] = []
    self._stop = threading.Event()
    self._lock = threading.Lock()
    self.problems: list[str] = []

  def __enter__(self) -> 'Meter':
    found, problems = rapl.find(self._files)
    self._devices = nvml_lib.Devices(self._nvml)
    self._sources = [*found, *self._devices.sources]
    self.problems = [*problems, *self._devices.problems]
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
    """Energy by source since the block began, until now or its end.

    Returns:
      Such as {"rapl:package-0": 812.5, "rapl:dram-0": 80.1, "nvml:0": 5000.0};
      empty where nothing can be read. None is part of another.
    """
    with self._lock:
      return {source.name: source.joules for source in self._sources}

  def _watch(self) -> None:
    """Reads each source before its counter is full, or its power old."""
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

  def _update(self, chosen: list[counters.Source]) -> None:
    for source in list(chosen):
      with self._lock:
        try:
          source.update()
        except (OSError, ValueError) as error:
          # Half a measurement would be taken for a whole one.
          self.problems.append(f'{source.name} was lost: {error}')
          self._sources.remove(source)
