import os
import time
from unittest import mock

from absl.testing import absltest

from harness.description.testing import fake_nvml
from harness.energy import energy
from saxml_ext.common.machine.testing import fake_machine

_ROOT = '/sys/class/powercap'


def _zone(name: str, label: str, energy: int) -> dict[str, str]:
  return {
    f'{_ROOT}/{name}/name': f'{label}\n',
    f'{_ROOT}/{name}/energy_uj': f'{energy}\n',
    f'{_ROOT}/{name}/max_energy_range_uj': '262143328850\n',
  }


_ZONES = (
  _zone('intel-rapl:0', 'package-0', 262_143_328_850 - 1_000_000)
  | _zone('intel-rapl:0:0', 'core', 5)
  | _zone('intel-rapl:0:1', 'dram', 1_000_000)
  | _zone('intel-rapl:1', 'psys', 7)
  | _zone('intel-rapl-mmio:0', 'package-0', 7)
  | {f'{_ROOT}/intel-rapl/enabled': '1\n'}
)


def _wait_until(condition) -> None:
  for _ in range(6000):
    if condition():
      return
    time.sleep(0.01)
  raise AssertionError('waited a minute in vain')


class EnergyTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._root = self.create_tempdir().full_path
    self._no_gpu = fake_nvml.FakeNvml(
      error=fake_nvml.NVMLError_LibraryNotFound()
    )

  def _files(self, tree=None):
    return fake_machine.make(self._root, tree or {})

  def _set(self, zone: str, energy: int) -> None:
    self._files({f'{_ROOT}/{zone}/energy_uj': f'{energy}\n'})

  def test_rapl(self):
    with energy.Meter(self._files(_ZONES), self._no_gpu) as m:
      self._set('intel-rapl:0', 2_000_000)  # The counter wrapped around.
      self._set('intel-rapl:0:1', 1_500_000)
    joules = m.joules()
    self.assertCountEqual(joules, ['rapl:package-0', 'rapl:dram-0'])
    self.assertAlmostEqual(joules['rapl:package-0'], 3.0)
    self.assertAlmostEqual(joules['rapl:dram-0'], 0.5)
    self.assertEqual(m.problems, [])

  def test_counter_of_a_device(self):
    nvml = fake_nvml.FakeNvml(devices=2)
    with energy.Meter(self._files(), nvml) as m:
      nvml.energy_mj = 1_250_000
    self.assertEqual(m.joules(), {'nvml:0': 250.0, 'nvml:1': 250.0})
    self.assertEqual(nvml.running, 0)

  def test_power_of_a_device_without_counter(self):
    nvml = fake_nvml.FakeNvml()
    nvml.energy_mj = None
    with energy.Meter(self._files(), nvml) as m:
      _wait_until(lambda: m.joules()['nvml:0'] > 0)
      during = m.joules()['nvml:0']
    self.assertGreaterEqual(m.joules()['nvml:0'], during)

  def test_nothing_to_read(self):
    with energy.Meter(self._files(), self._no_gpu) as m:
      pass
    self.assertEqual(m.joules(), {})
    self.assertEqual(m.problems, [])

  def test_unreadable_counter_is_reported(self):
    files = self._files(_zone('intel-rapl:0', 'package-0', 1))
    path = files.path(f'{_ROOT}/intel-rapl:0/energy_uj')
    os.remove(path)
    os.mkdir(path)
    nvml = fake_nvml.FakeNvml()
    nvml.energy_mj = nvml.power_mw = None
    with energy.Meter(files, nvml) as m:
      pass
    self.assertEqual(m.joules(), {})
    first, second = m.problems
    self.assertStartsWith(first, f'{path} cannot be read')
    self.assertStartsWith(second, 'nvml:0 reports neither energy nor power')

  def test_missing_permission_is_reported(self):
    files = self._files(_zone('intel-rapl:0', 'package-0', 1))
    # Tests may run as root, and root can read every file.
    with mock.patch.object(energy, '_read', side_effect=PermissionError):
      with energy.Meter(files, self._no_gpu) as m:
        pass
    self.assertEqual(m.joules(), {})
    self.assertRegex(m.problems[0], 'only root can read .* `sudo chmod a.r /')

  def test_a_source_that_is_lost_gives_no_figure(self):
    files = self._files(_ZONES)
    with energy.Meter(files, self._no_gpu) as m:
      os.remove(files.path(f'{_ROOT}/intel-rapl:0/energy_uj'))
    self.assertNotIn('rapl:package-0', m.joules())
    self.assertStartsWith(m.problems[0], 'rapl:package-0 was lost')

  def test_this_machine(self):
    with energy.Meter() as m:
      sum(range(100_000))
    for joules in m.joules().values():
      self.assertGreaterEqual(joules, 0)


class CountersTest(absltest.TestCase):
  def test_counter_that_begins_again(self):
    values = iter([900, 950, 20, 60])
    counter = energy.Counter('a', lambda: next(values), 0.5, size=1000)
    seen = []
    for _ in range(4):
      counter.update()
      seen.append(counter.joules)
    self.assertEqual(seen, [0.0, 25.0, 60.0, 80.0])

  def test_power_over_time(self):
    times, watts = iter([10.0, 12.0, 13.0]), iter([100.0, 200.0, 100.0])
    power = energy.Power('a', lambda: next(watts), lambda: next(times))
    seen = []
    for _ in range(3):
      power.update()
      seen.append(power.joules)
    self.assertEqual(seen, [0.0, 300.0, 450.0])


if __name__ == '__main__':
  absltest.main()
