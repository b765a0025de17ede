import json
import platform

from absl.testing import absltest

from harness.description import cpu
from saxml_ext.common.machine import machine_files
from saxml_ext.common.machine.testing import fake_machine

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
      cpu.detect(self._files, _lscpu(_LSCPU)),
      cpu.Cpu(
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
      cpu.detect(self._files, json.dumps(nested)),
      cpu.Cpu(
        'Neoverse-V2', 1, 72, '3800 MHz (max)', 'L2: 72 MiB (72 instances)'
      ),
    )

  def test_an_arm_cpu_that_does_not_tell_its_name(self):
    fields = {
      'Model name:': '-',
      'Core(s) per cluster:': '4',
      'Socket(s):': '-',
      'Cluster(s):': '1',
    }
    found = cpu.detect(self._files, _lscpu(fields))
    self.assertEqual((found.model, found.sockets, found.cores), ('', 1, 4))

  def test_from_cpuinfo(self):
    self.assertEqual(
      cpu.detect(self._files),
      cpu.Cpu('Some(R) Xeon(R) 8480C', 2, 2, '3800 MHz (max)'),
    )

  def test_nothing_is_known_of_no_machine(self):
    files = machine_files.MachineFiles(self.create_tempdir().full_path)
    self.assertEqual(cpu.detect(files), cpu.Cpu('', 0, 0))
    self.assertIsNone(cpu.governor(files))

  def test_governor(self):
    self.assertEqual(cpu.governor(self._files), 'performance')
    fake_machine.make(
      self._root,
      {
        '/sys/devices/system/cpu/cpu10/cpufreq/scaling_governor': 'powersave',
      },
    )
    self.assertEqual(cpu.governor(self._files), 'performance, powersave')

  def test_this_machine(self):
    found = cpu.detect(machine_files.MachineFiles(), cpu.run_lscpu())
    self.assertGreaterEqual(found.sockets, 1)
    self.assertGreaterEqual(found.cores, 1)
    if platform.machine() == 'x86_64':
      self.assertNotEmpty(found.model)


if __name__ == '__main__':
  absltest.main()
