"""What a machine has besides its CPU: memory, disks, network, system."""

import collections
from collections.abc import Mapping
import platform
import re
import shutil
import subprocess

from saxml_ext.common.machine import machine_files

# Disks that are no hardware, or are made of others.
_NO_DISK = re.compile(r'(loop|ram|zram|dm-|md|sr|fd|nbd|zd)\d*')
_SECTOR_BYTES = 512  # Of /sys/block/*/size, whatever the disk's own are.
_GIB = 2**30
_GB = 10**9


def detect(
  files: machine_files.MachineFiles, dmidecode: str = ''
) -> dict[str, str]:
  """Values of the description that are about the machine.

  Args:
    files: of the machine.
    dmidecode: what `dmidecode -t memory` prints; "" where nobody may run it.

  Returns:
    Value by key; keys whose value is not known are left out.
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
  """What `dmidecode -t memory` prints; "" without it or the right to run it."""
  program = shutil.which('dmidecode') or shutil.which(
    'dmidecode', path='/usr/sbin:/sbin'
  )
  if program is None:
    return ''
  ended = subprocess.run(
    [program, '-t', 'memory'], capture_output=True, text=True, check=False
  )
  return '' if ended.returncode else ended.stdout


def memory_modules(dmidecode: str) -> str:
  """Such as "12x 16 GB DDR4 3200 MT/s", of what dmidecode prints."""
  modules: collections.Counter[str] = collections.Counter()
  for block in dmidecode.split('\n\n'):
    if 'Memory Device' not in block:
      continue
    fields = dict(re.findall(r'^\s+([^:\n]+):[ \t]*(.*)$', block, re.M))
    size = fields.get('Size', '')
    if not size[:1].isdigit():
      continue  # An empty slot: "No Module Installed".
    words = [size, fields.get('Type', ''), fields.get('Speed', '')]
    modules[' '.join(w for w in words if w and w != 'Unknown')] += 1
  return '; '.join(f'{count}x {text}' for text, count in modules.items())


def _memory(files: machine_files.MachineFiles) -> str:
  match = re.search(r'MemTotal:\s+(\d+) kB', files.text('/proc/meminfo'))
  if not match:
    return ''
  return f'{int(match[1]) * 1024 / _GIB:.0f} GiB'


def _disks(files: machine_files.MachineFiles) -> dict[str, str]:
  """Size of all disks by kind, such as {"NVMe SSD": "500 GB"}."""
  sizes: Mapping[str, int]
  sizes = collections.Counter()
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
    return 'virtual disk'  # Its "rotational" is the hypervisor's guess.
  rotates = files.text(f'/sys/block/{name}/queue/rotational') == '1'
  return 'HDD' if rotates else 'SSD'


def _network_cards(files: machine_files.MachineFiles) -> list[str]:
  """A text for each network card, such as "100 Gb Ethernet"."""
  cards = []
  for name in files.names('/sys/class/net'):
    directory = f'/sys/class/net/{name}'
    if not files.exists(f'{directory}/device'):
      continue  # A bridge, a tunnel, the loopback: no card.
    # ARPHRD_INFINIBAND of the kernel's if_arp.h is 32.
    kind = files.text(f'{directory}/type')
    medium = 'InfiniBand' if kind == '32' else 'Ethernet'
    speed = files.number(f'{directory}/speed')
    cards.append(f'{_speed(speed)} {medium}'.strip())
  return cards


def _speed(mbit: int | None) -> str:
  """Without a cable, and on virtual cards, the speed is -1."""
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
