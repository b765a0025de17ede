import os

from absl.testing import absltest

from harness.description import host
from saxml_ext.common.machine import machine_files
from saxml_ext.common.machine.testing import fake_machine

_DMIDECODE = """# dmidecode 3.4
Handle 0x0030, DMI type 17, 92 bytes
Memory Device
	Size: 16 GB
	Type: DDR4
	Speed: 3200 MT/s

Handle 0x0031, DMI type 17, 92 bytes
Memory Device
	Size: 16 GB
	Type: DDR4
	Speed: 3200 MT/s

Handle 0x0032, DMI type 17, 92 bytes
Memory Device
	Size: No Module Installed
	Type: Unknown

Handle 0x0033, DMI type 17, 92 bytes
Memory Device
	Size: 8 GB
	Type: Unknown
	Speed: Unknown

Handle 0x0040, DMI type 16, 23 bytes
Physical Memory Array
	Size: 1 TB
"""


class HostTest(absltest.TestCase):
  def test_a_server(self):
    files = fake_machine.make(
      self.create_tempdir().full_path, fake_machine.SERVER
    )
    self.assertEqual(
      host.detect(files, _DMIDECODE),
      {
        'system_name': 'Acme R42',
        'host_memory_capacity': '252 GiB',
        'host_memory_configuration': '2x 16 GB DDR4 3200 MT/s; 1x 8 GB',
        'host_storage_type': 'HDD; NVMe SSD',
        'host_storage_capacity': 'HDD: 2000 GB; NVMe SSD: 2000 GB',
        'host_networking': '2x 25 Gb Ethernet; Ethernet; 400 Gb InfiniBand',
        'host_network_card_count': '4',
        'operating_system': 'Debian GNU/Linux 12 (Linux 6.1.0-13-amd64)',
      },
    )

  def test_what_is_not_known_is_left_out(self):
    files = machine_files.MachineFiles(self.create_tempdir().full_path)
    self.assertCountEqual(host.detect(files), ['operating_system'])

  def test_this_machine(self):
    found = host.detect(machine_files.MachineFiles(), host.run_dmidecode())
    if os.path.exists('/proc/meminfo'):
      self.assertRegex(found['host_memory_capacity'], r'^\d+ GiB$')
    self.assertNotEmpty(found['operating_system'])


if __name__ == '__main__':
  absltest.main()
