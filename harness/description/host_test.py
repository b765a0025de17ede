import json
import os
import platform
import shutil
import subprocess
import unittest

from absl.testing import absltest
import numpy as np

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

  def test_unknown_values_are_left_out(self):
    files = machine_files.MachineFiles(self.create_tempdir().full_path)
    self.assertCountEqual(host.detect(files), ['operating_system'])

  def test_this_machine(self):
    detected = host.detect(machine_files.MachineFiles(), host.run_dmidecode())
    if os.path.exists('/proc/meminfo'):
      self.assertRegex(detected['host_memory_capacity'], r'^\d+ GiB$')
    self.assertNotEmpty(detected['operating_system'])


_LSCPU = {
  'Model name:': 'AMD EPYC 7B13',
  'Thread(s) per core:': '2',
  'Core(s) per socket:': '56',
  'Socket(s):': '1',
  'CPU max MHz:': '3500.0000',
  'L1d cache:': '1.8 MiB (56 instances)',
  'L3 cache:': '224 MiB (7 instances)',
}


def _lscpu(fields: dict[str, str]) -> str:
  return json.dumps(
    {'lscpu': [{'field': k, 'data': v} for k, v in fields.items()]}
  )


class CpuTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._root = self.create_tempdir().full_path
    self._files = fake_machine.make(self._root, fake_machine.SERVER)

  def test_from_lscpu(self):
    self.assertEqual(
      host.detect_cpu(self._files, _lscpu(_LSCPU)),
      host.Cpu(
        'AMD EPYC 7B13',
        sockets=1,
        cores=56,
        frequency='3500 MHz (max)',
        caches='L1d: 1.8 MiB (56 instances); L3: 224 MiB (7 instances)',
      ),
    )

  def test_from_the_nested_fields_of_newer_versions(self):
    nested = {
      'lscpu': [
        {
          'field': 'Vendor ID:',
          'data': 'ARM',
          'children': [
            {
              'field': 'Model name:',
              'data': 'Neoverse-V2',
              'children': [
                {'field': 'Core(s) per socket:', 'data': '72'},
                {'field': 'Socket(s):', 'data': '1'},
              ],
            }
          ],
        },
        {
          'field': 'Caches (sum of all):',
          'data': None,
          'children': [{'field': 'L2:', 'data': '72 MiB (72 instances)'}],
        },
      ]
    }
    self.assertEqual(
      host.detect_cpu(self._files, json.dumps(nested)),
      host.Cpu(
        'Neoverse-V2', 1, 72, '3800 MHz (max)', 'L2: 72 MiB (72 instances)'
      ),
    )

  def test_arm_cpu_without_a_name(self):
    fields = {
      'Model name:': '-',
      'Core(s) per cluster:': '4',
      'Socket(s):': '-',
      'Cluster(s):': '1',
    }
    cpu = host.detect_cpu(self._files, _lscpu(fields))
    self.assertEqual((cpu.model, cpu.sockets, cpu.cores), ('', 1, 4))

  def test_from_cpuinfo(self):
    self.assertEqual(
      host.detect_cpu(self._files),
      host.Cpu('Some(R) Xeon(R) 8480C', 2, 2, '3800 MHz (max)'),
    )

  def test_empty_machine_has_no_cpu(self):
    files = machine_files.MachineFiles(self.create_tempdir().full_path)
    self.assertEqual(host.detect_cpu(files), host.Cpu('', 0, 0))
    self.assertIsNone(host.governor(files))

  def test_governor(self):
    self.assertEqual(host.governor(self._files), 'performance')
    fake_machine.make(
      self._root,
      {
        '/sys/devices/system/cpu/cpu10/cpufreq/scaling_governor': 'powersave',
      },
    )
    self.assertEqual(host.governor(self._files), 'performance, powersave')

  def test_this_machine(self):
    cpu = host.detect_cpu(machine_files.MachineFiles(), host.run_lscpu())
    self.assertGreaterEqual(cpu.sockets, 1)
    self.assertGreaterEqual(cpu.cores, 1)
    if platform.machine() == 'x86_64':
      self.assertNotEmpty(cpu.model)


class SoftwareTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._dir = self.create_tempdir().full_path

  def _versions(self) -> dict[str, str]:
    return host.versions({'BUILD_WORKSPACE_DIRECTORY': self._dir})

  def test_versions(self):
    by_package = self._versions()
    self.assertEqual(by_package['python'], platform.python_version())
    self.assertEqual(by_package['numpy'], np.__version__)
    self.assertContainsSubset(by_package, {'python', 'commit', *host.PACKAGES})
    self.assertNotIn('commit', by_package)

  @unittest.skipUnless(shutil.which('git'), 'There is no git here.')
  def test_commit(self):
    def git(*words: str) -> str:
      settings = ('-c', 'user.name=a', '-c', 'user.email=b')
      return subprocess.run(
        ['git', '-C', self._dir, *settings, *words],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {'GIT_CONFIG_GLOBAL': '/dev/null'},
      ).stdout.strip()

    path = os.path.join(self._dir, 'file')
    with open(path, 'w', encoding='utf-8') as file:
      file.write('1')
    git('init', '-q')
    git('add', '.')
    git('commit', '-q', '-m', 'first')
    commit = git('rev-parse', 'HEAD')
    self.assertEqual(self._versions()['commit'], commit)
    with open(path, 'w', encoding='utf-8') as file:
      file.write('22')
    self.assertEqual(self._versions()['commit'], commit + '-dirty')

  def test_framework(self):
    by_package = {'python': '3.11', 'torch': '2.13.0'}
    self.assertEqual(host.framework(by_package, 'torch'), 'PyTorch 2.13.0')
    self.assertEqual(host.framework(by_package, 'onnxruntime'), 'ONNX Runtime')
    self.assertEqual(host.framework(by_package), 'JAX')

  def test_stack(self):
    self.assertEqual(
      host.stack({'python': '3.11', 'jax': '0.1', 'commit': 'ab'}),
      'Python 3.11, jax 0.1',
    )


if __name__ == '__main__':
  absltest.main()
