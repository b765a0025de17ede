"""What the CPU is: its model, cores, clock and caches."""

from collections.abc import Iterator, Mapping
import dataclasses
import json
import re
import shutil
import subprocess
from typing import Any

from saxml_ext.common.machine import machine_files

_GOVERNORS = '/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor'
_MAX_KHZ = '/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq'
_CACHES = ('L1d', 'L1i', 'L2', 'L3')


@dataclasses.dataclass(frozen=True)
class Cpu:
  """The CPUs of a machine; "" and 0 stand for what is not known.

  Attributes:
    model: such as "AMD EPYC 7B13".
    sockets: CPUs.
    cores: of one CPU.
    frequency: such as "3500 MHz (max)".
    caches: such as "L1d: 1.8 MiB (56 instances); L2: 28 MiB (56 instances)".
  """

  model: str
  sockets: int
  cores: int
  frequency: str = ''
  caches: str = ''


def detect(files: machine_files.MachineFiles, lscpu: str | None = None) -> Cpu:
  """Describes the CPUs.

  Args:
    files: of the machine.
    lscpu: what `lscpu -J` prints, which also knows the names of Arm's CPUs;
      "" or None: there is no such program, and /proc/cpuinfo must do.
  """
  if lscpu:
    return _from_lscpu(lscpu, files)
  return _from_cpuinfo(files)


def run_lscpu() -> str:
  """What `lscpu -J` prints on this machine; "" where it cannot be run."""
  program = shutil.which('lscpu')
  if program is None:
    return ''
  ended = subprocess.run(
    [program, '-J'],
    capture_output=True,
    text=True,
    check=False,
    env={'LC_ALL': 'C'},  # Field names in English.
  )
  return '' if ended.returncode else ended.stdout


def governor(files: machine_files.MachineFiles) -> str | None:
  """The frequency governor; several, with commas; None where there is none."""
  found = {files.text(path) for path in files.find(_GOVERNORS)} - {''}
  return ', '.join(sorted(found)) or None


def _from_lscpu(text: str, files: machine_files.MachineFiles) -> Cpu:
  fields = dict(_flat(json.loads(text)['lscpu']))
  return Cpu(
    model=_model(fields.get('Model name', '')),
    # Arm's CPUs may have clusters where others have sockets, and "-" there.
    sockets=_count(fields, 'Socket(s)') or _count(fields, 'Cluster(s)'),
    cores=_count(fields, 'Core(s) per socket')
    or _count(fields, 'Core(s) per cluster'),
    frequency=_frequency(fields.get('CPU max MHz'), files),
    caches='; '.join(
      f'{name}: {fields[key]}'
      for name in _CACHES
      if (key := f'{name} cache') in fields or (key := name) in fields
    ),
  )


def _flat(fields: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
  """Fields of lscpu; newer versions nest them."""
  for field in fields:
    yield field['field'].rstrip(':'), field['data'] or ''
    yield from _flat(field.get('children', []))


def _from_cpuinfo(files: machine_files.MachineFiles) -> Cpu:
  blocks = [
    dict(
      (key.strip(), value.strip())
      for key, _, value in (line.partition(':') for line in block.splitlines())
    )
    for block in files.text('/proc/cpuinfo').split('\n\n')
  ]
  processors = [block for block in blocks if 'processor' in block]
  sockets = {block.get('physical id', '0') for block in processors}
  cores = {
    (block.get('physical id', '0'), block.get('core id', block['processor']))
    for block in processors
  }
  model = processors[0].get('model name', '') if processors else ''
  return Cpu(
    model=_model(model),
    sockets=len(sockets),
    cores=len(cores) // max(len(sockets), 1),
    frequency=_frequency(None, files),
  )


def _model(name: str) -> str:
  """A name without the clock that some have at their end."""
  plain = re.sub(r'\s+', ' ', re.sub(r'\s*@.*', '', name)).strip()
  return '' if plain == '-' else plain


def _count(fields: Mapping[str, str], name: str) -> int:
  text = fields.get(name, '')
  return int(text) if text.isdigit() else 0


def _frequency(mhz: str | None, files: machine_files.MachineFiles) -> str:
  if mhz:
    return f'{float(mhz):.0f} MHz (max)'
  khz = files.number(_MAX_KHZ)
  return f'{khz / 1000:.0f} MHz (max)' if khz else ''
