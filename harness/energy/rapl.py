"""Energy of CPUs and their memory, as RAPL counts it.

Intel's and AMD's CPUs count their energy; Linux shows the counters under
/sys/class/powercap (Documentation/power/powercap/powercap.rst), since 2020 to
root alone.
"""

import functools
import re

from harness.energy import counters
from saxml_ext.common.machine import machine_files

_ZONES = '/sys/class/powercap/intel-rapl:*'
# A zone of a CPU or of the whole platform, or one within it.
_ZONE = re.compile(r'.*/intel-rapl:(\d+)(:\d+)?')
_MICROJOULE = 1e-6


def find(
  files: machine_files.MachineFiles,
) -> tuple[list[counters.Source], list[str]]:
  """The counters of a machine.

  None of them is part of another, so that they may be added: a CPU's cores are
  part of its package, and packages are part of "psys", the whole platform,
  which few machines have; its memory (dram) is part of neither.

  Returns:
    The counters that can be read, and why others cannot.
  """
  found: list[counters.Source] = []
  problems = []
  for zone in files.find(_ZONES):
    name = _name(zone, files.text(f'{zone}/name'))
    if name is None:
      continue
    path = files.path(f'{zone}/energy_uj')
    counter = counters.Counter(
      name,
      functools.partial(_read, path),
      _MICROJOULE,
      files.number(f'{zone}/max_energy_range_uj') or 0,
    )
    try:
      _read(path)
    except PermissionError:
      problems.append(
        f'{path} may be read by root alone; let everyone read it by'
        f' `sudo chmod a+r {path}`, or run as root'
      )
    except (OSError, ValueError) as error:
      problems.append(f'{path} cannot be read: {error}')
    else:
      found.append(counter)
  return found, problems


def _name(zone: str, label: str) -> str | None:
  """A name for results; None for a zone whose energy another contains."""
  match = _ZONE.fullmatch(zone)
  if not match:
    return None
  if match[2] is None:
    return f'rapl:{label}' if label.startswith('package') else None
  return f'rapl:dram-{match[1]}' if label == 'dram' else None


def _read(path: str) -> int:
  with open(path, encoding='utf-8') as file:
    return int(file.read())
