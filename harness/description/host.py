"""Detects the hardware of a machine and the software on it.

The hardware is CPUs, memory, disks and network. The software is the operating
system, the versions of packages and Python, and the repository's commit.
"""

import collections
from collections.abc import Iterator, Mapping
import dataclasses
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
from typing import Any

from saxml_ext.common.machine import machine_files

# Matches block devices that are not disks or that combine other disks.
_NO_DISK = re.compile(r'(loop|ram|zram|dm-|md|sr|fd|nbd|zd)\d*')
_SECTOR_BYTES = 512  # /sys/block/*/size always has this unit.
_GIB = 2**30
_GB = 10**9

_GOVERNORS = '/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor'
_MAX_KHZ = '/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq'
_CACHES = ('L1d', 'L1i', 'L2', 'L3')

PACKAGES = (
  'jax',
  'jaxlib',
  'libtpu',
  'numpy',
  'transformers',
  'torch',
  'mlcommons-loadgen',
  'onnxruntime',
)
# Packages that are also published under other names.
_OTHER_NAMES = {
  'mlcommons-loadgen': ('mlcommons_loadgen',),
  'libtpu': ('libtpu-nightly',),
  'onnxruntime': ('onnxruntime-gpu',),
}

_FRAMEWORKS = {'jax': 'JAX', 'torch': 'PyTorch', 'onnxruntime': 'ONNX Runtime'}

# `bazel run` sets this to the workspace, because the program is elsewhere.
_WORKSPACE = 'BUILD_WORKSPACE_DIRECTORY'
_SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..')


def detect(
  files: machine_files.MachineFiles, dmidecode: str = ''
) -> dict[str, str]:
  """Returns the values of the description that refer to the host.

  Args:
    files: The files of the machine.
    dmidecode: The output of `dmidecode -t memory`; "" if it needs root.

  Returns:
    The known values, by key.
  """
  disks = _disks(files)
  cards = _network_cards(files)
  values = {
    'system_name': _product(files),
    'host_memory_capacity': _memory(files),
    'host_memory_configuration': memory_modules(dmidecode),
    'host_storage_type': '; '.join(sorted(disks)),
    'host_storage_capacity': '; '.join(
      f'{kind}: {size}' for kind, size in sorted(disks.items())
    ),
    'host_networking': '; '.join(_counted(cards)),
    'host_network_card_count': str(len(cards)) if cards else '',
    'operating_system': _operating_system(files),
  }
  return {key: value for key, value in values.items() if value}


def run_dmidecode() -> str:
  """Returns the output of `dmidecode -t memory`; "" if it needs root."""
  return _output('dmidecode', '-t', 'memory')


def _output(name: str, *arguments: str) -> str:
  """Returns a program's English output; "" if it fails or is missing."""
  program = shutil.which(name) or shutil.which(name, path='/usr/sbin:/sbin')
  if program is None:
    return ''
  ended = subprocess.run(
    [program, *arguments],
    capture_output=True,
    text=True,
    check=False,
    env={'LC_ALL': 'C'},
  )
  return '' if ended.returncode else ended.stdout


def memory_modules(dmidecode: str) -> str:
  """Returns text such as "12x 16 GB DDR4 3200 MT/s" for dmidecode's output."""
  modules: collections.Counter[str] = collections.Counter()
  for block in dmidecode.split('\n\n'):
    if 'Memory Device' not in block:
      continue
    fields = dict(re.findall(r'^\s+([^:\n]+):[ \t]*(.*)$', block, re.M))
    size = fields.get('Size', '')
    if not size[:1].isdigit():
      continue  # The slot is empty: "No Module Installed".
    words = [size, fields.get('Type', ''), fields.get('Speed', '')]
    modules[' '.join(w for w in words if w and w != 'Unknown')] += 1
  return '; '.join(f'{count}x {text}' for text, count in modules.items())


def _memory(files: machine_files.MachineFiles) -> str:
  match = re.search(r'MemTotal:\s+(\d+) kB', files.text('/proc/meminfo'))
  if not match:
    return ''
  return f'{int(match[1]) * 1024 / _GIB:.0f} GiB'


def _disks(files: machine_files.MachineFiles) -> dict[str, str]:
  """Returns the size of all disks by kind, such as {"NVMe SSD": "500 GB"}."""
  sizes: collections.Counter[str] = collections.Counter()
  for name in files.names('/sys/block'):
    sectors = files.number(f'/sys/block/{name}/size')
    if _NO_DISK.fullmatch(name) or not sectors:
      continue
    sizes[_disk_kind(files, name)] += sectors * _SECTOR_BYTES
  return {kind: f'{size / _GB:.0f} GB' for kind, size in sizes.items()}


def _disk_kind(files: machine_files.MachineFiles, name: str) -> str:
  if name.startswith('nvme'):
    return 'NVMe SSD'
  if re.match(r'(vd|xvd)', name):
    return 'virtual disk'  # The hypervisor guesses "rotational".
  rotates = files.text(f'/sys/block/{name}/queue/rotational') == '1'
  return 'HDD' if rotates else 'SSD'


def _network_cards(files: machine_files.MachineFiles) -> list[str]:
  """Returns a text for each network card, such as "100 Gb Ethernet"."""
  cards = []
  for name in files.names('/sys/class/net'):
    directory = f'/sys/class/net/{name}'
    if not files.exists(f'{directory}/device'):
      continue  # It is a bridge, a tunnel or the loopback.
    # The constant ARPHRD_INFINIBAND in the kernel's if_arp.h is 32.
    kind = files.text(f'{directory}/type')
    medium = 'InfiniBand' if kind == '32' else 'Ethernet'
    speed = files.number(f'{directory}/speed')
    cards.append(f'{_speed(speed)} {medium}'.strip())
  return cards


def _speed(mbit: int | None) -> str:
  # Without a cable, and on virtual cards, the speed is -1.
  if mbit is None or mbit <= 0:
    return ''
  return f'{mbit / 1000:g} Gb' if mbit >= 1000 else f'{mbit} Mb'


def _counted(texts: list[str]) -> list[str]:
  return [
    f'{count}x {text}' if count > 1 else text
    for text, count in collections.Counter(texts).items()
  ]


def _product(files: machine_files.MachineFiles) -> str:
  vendor = files.text('/sys/class/dmi/id/sys_vendor')
  product = files.text('/sys/class/dmi/id/product_name')
  return f'{vendor} {product}'.strip()


def _operating_system(files: machine_files.MachineFiles) -> str:
  match = re.search(
    r'^PRETTY_NAME="?([^"\n]+)"?', files.text('/etc/os-release'), re.M
  )
  kernel = files.text('/proc/sys/kernel/osrelease')
  name = match[1] if match else platform.system()
  return f'{name} (Linux {kernel})' if kernel else name


@dataclasses.dataclass(frozen=True)
class Cpu:
  """The CPUs of a machine. Unknown values are "" and 0.

  Attributes:
    model: The model, such as "AMD EPYC 7B13".
    sockets: The number of CPUs.
    cores: The number of cores per CPU.
    frequency: The frequency, such as "3500 MHz (max)".
    caches: The caches, such as "L1d: 1.8 MiB (56 instances); L2: 28 MiB (56
      instances)".
  """

  model: str
  sockets: int
  cores: int
  frequency: str = ''
  caches: str = ''


def detect_cpu(
  files: machine_files.MachineFiles, lscpu: str | None = None
) -> Cpu:
  """Returns the CPUs of a machine.

  Args:
    files: The files of the machine.
    lscpu: The output of `lscpu -J`, which also has the names of Arm CPUs. If it
      is "" or None, /proc/cpuinfo is read instead.
  """
  if lscpu:
    return _from_lscpu(lscpu, files)
  return _from_cpuinfo(files)


def run_lscpu() -> str:
  """Returns the output of `lscpu -J`; "" if it cannot be run."""
  return _output('lscpu', '-J')


def governor(files: machine_files.MachineFiles | None = None) -> str | None:
  """Returns the frequency governors, separated by commas, or None.

  Args:
    files: A replacement for the files under /.
  """
  files = files or machine_files.MachineFiles()
  governors = {files.text(path) for path in files.find(_GOVERNORS)} - {''}
  return ', '.join(sorted(governors)) or None


def _from_lscpu(text: str, files: machine_files.MachineFiles) -> Cpu:
  fields = dict(_flat(json.loads(text)['lscpu']))
  return Cpu(
    model=_cpu_model(fields.get('Model name', '')),
    # Arm CPUs may have clusters instead of sockets, and "-" as the number of
    # sockets.
    sockets=_count(fields, 'Socket(s)') or _count(fields, 'Cluster(s)'),
    cores=_count(fields, 'Core(s) per socket')
    or _count(fields, 'Core(s) per cluster'),
    frequency=_cpu_frequency(fields.get('CPU max MHz'), files),
    caches='; '.join(
      f'{name}: {fields[key]}'
      for name in _CACHES
      if (key := f'{name} cache') in fields or (key := name) in fields
    ),
  )


def _flat(fields: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
  """Yields the fields of lscpu, which newer versions nest."""
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
    model=_cpu_model(model),
    sockets=len(sockets),
    cores=len(cores) // max(len(sockets), 1),
    frequency=_cpu_frequency(None, files),
  )


def _cpu_model(name: str) -> str:
  """Returns a CPU's name without the clock rate at the end."""
  plain = re.sub(r'\s+', ' ', re.sub(r'\s*@.*', '', name)).strip()
  return '' if plain == '-' else plain


def _count(fields: Mapping[str, str], name: str) -> int:
  text = fields.get(name, '')
  return int(text) if text.isdigit() else 0


def _cpu_frequency(mhz: str | None, files: machine_files.MachineFiles) -> str:
  if mhz:
    return f'{float(mhz):.0f} MHz (max)'
  khz = files.number(_MAX_KHZ)
  return f'{khz / 1000:.0f} MHz (max)' if khz else ''


def versions(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
  """Returns the versions of installed packages, "python" and "commit".

  The commit ends in "-dirty" if files of the repository were changed.
  """
  result = {'python': platform.python_version()}
  for package in PACKAGES:
    version = _version(package)
    if version is not None:
      result[package] = version
  commit = _commit(environment.get(_WORKSPACE, _SOURCES))
  return result | ({'commit': commit} if commit else {})


def stack(by_package: Mapping[str, str]) -> str:
  """Returns versions as one line, such as "Python 3.11.7, jax 0.10.2"."""
  packages = [
    f'{name} {version}'
    for name, version in by_package.items()
    if name not in ('python', 'commit')
  ]
  return ', '.join([f'Python {by_package["python"]}', *packages])


def framework(by_package: Mapping[str, str], package: str = 'jax') -> str:
  """Returns the name of a framework, with its version if it is known.

  Args:
    by_package: The result of `versions`.
    package: The package: jax, torch or onnxruntime.
  """
  name = _FRAMEWORKS.get(package, package)
  return f'{name} {by_package[package]}' if package in by_package else name


def _version(package: str) -> str | None:
  for name in (package, *_OTHER_NAMES.get(package, ())):
    try:
      return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
      continue
  return None


def _commit(directory: str) -> str:
  """Returns the checked-out commit; "" without git or a repository."""
  git = shutil.which('git')
  if git is None or not os.path.exists(os.path.join(directory, '.git')):
    return ''
  ended = subprocess.run(
    [
      *(git, '-C', directory, 'describe'),
      *('--always', '--dirty', '--abbrev=40', '--exclude=*'),
    ],
    capture_output=True,
    text=True,
    check=False,
  )
  return '' if ended.returncode else ended.stdout.strip()
