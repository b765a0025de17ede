"""Makes directories that look like /proc, /sys and /etc of some machine."""

from collections.abc import Mapping
import os

from saxml_ext.common.machine import machine_files

_CPUINFO = """processor	: {index}
vendor_id	: GenuineIntel
model name	: Some(R) Xeon(R)  8480C @ 2.00GHz
physical id	: {socket}
core id		: {core}
"""

# The machine has two sockets with two cores each and two threads per core.
SERVER = {
  '/proc/cpuinfo': '\n'.join(
    _CPUINFO.format(index=4 * socket + 2 * core + thread, **locals())
    for socket in range(2)
    for core in range(2)
    for thread in range(2)
  ),
  '/proc/meminfo': 'MemTotal:       263856640 kB\nMemFree:  1 kB\n',
  '/proc/sys/kernel/osrelease': '6.1.0-13-amd64\n',
  '/etc/os-release': 'NAME="Debian"\nPRETTY_NAME="Debian GNU/Linux 12"\n',
  '/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor': 'performance\n',
  '/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor': 'performance\n',
  '/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq': '3800000\n',
  '/sys/class/dmi/id/sys_vendor': 'Acme\n',
  '/sys/class/dmi/id/product_name': 'R42\n',
  '/sys/block/nvme0n1/size': '1953125000\n',
  '/sys/block/nvme1n1/size': '1953125000\n',
  '/sys/block/sda/size': '3906250000\n',
  '/sys/block/sda/queue/rotational': '1\n',
  '/sys/block/sdb/size': '0\n',
  '/sys/block/loop0/size': '100\n',
  '/sys/block/dm-0/size': '1953125000\n',
  '/sys/class/net/lo/type': '772\n',
  '/sys/class/net/eth0/type': '1\n',
  '/sys/class/net/eth0/speed': '25000\n',
  '/sys/class/net/eth0/device/vendor': '0x15b3\n',
  '/sys/class/net/eth1/type': '1\n',
  '/sys/class/net/eth1/speed': '25000\n',
  '/sys/class/net/eth1/device/vendor': '0x15b3\n',
  '/sys/class/net/eth2/type': '1\n',
  '/sys/class/net/eth2/speed': '-1\n',
  '/sys/class/net/eth2/device/vendor': '0x15b3\n',
  '/sys/class/net/ib0/type': '32\n',
  '/sys/class/net/ib0/speed': '400000\n',
  '/sys/class/net/ib0/device/vendor': '0x15b3\n',
}

# A host with four TPU v5e chips has these files too.
TPU_V5E = {
  f'/sys/bus/pci/devices/0000:00:0{slot}.0/{name}': value
  for slot in range(4, 8)
  for name, value in (('vendor', '0x1ae0\n'), ('device', '0x0063\n'))
} | {
  '/sys/bus/pci/devices/0000:00:01.0/vendor': '0x1ae0\n',
  '/sys/bus/pci/devices/0000:00:01.0/device': '0x0042\n',
}

# A host with two NVIDIA GPUs and their driver has these files too.
H100 = {'/dev/nvidia0': '', '/dev/nvidia1': '', '/dev/nvidiactl': ''} | {
  f'/proc/driver/nvidia/gpus/0000:{bus}:00.0/information': (
    'Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 31\n'
  )
  for bus in ('17', '3d')
}


def make(root: str, *trees: Mapping[str, str]) -> machine_files.MachineFiles:
  """Writes files below a root.

  Args:
    root: The directory for the files.
    *trees: The texts of the files by their paths.
  """
  for tree in trees:
    for name, text in tree.items():
      path = os.path.join(root, name.lstrip('/'))
      os.makedirs(os.path.dirname(path), exist_ok=True)
      with open(path, 'w', encoding='utf-8') as file:
        file.write(text)
  return machine_files.MachineFiles(root)
