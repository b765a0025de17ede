import os

from absl.testing import absltest

from harness.description import cuda
from harness.description import description
from harness.description.testing import fake_nvml
from saxml_ext.common.machine.testing import fake_machine

_BY_USER = {
  'submitter': 'Me',
  'division': 'open',
  'status': 'available',
  'system_name': 'mine',
  'system_type': 'edge',
  'host_memory_configuration': '1x 8 GB',
  'host_networking_topology': 'N/A',
  'cooling': 'air',
}

# The required keys in tools/submission/submission_checker.py of
# mlcommons/inference, v4.1 to v5.1, and in constants.py of its package since
# v6.0.
_REQUIRED = """
division submitter status system_name number_of_nodes host_processor_model_name
host_processors_per_node host_processor_core_count host_memory_capacity
host_storage_capacity host_storage_type accelerators_per_node
accelerator_model_name accelerator_memory_capacity framework operating_system
system_type other_software_stack host_processor_frequency host_processor_caches
host_memory_configuration host_processor_interconnect host_networking
host_networking_topology accelerator_frequency accelerator_host_interconnect
accelerator_interconnect accelerator_interconnect_topology
accelerator_memory_configuration accelerator_on-chip_memories cooling hw_notes
sw_notes host_network_card_count system_type_detail
""".split()
_MAY_BE_EMPTY = """
host_processor_frequency host_processor_caches host_processor_interconnect
accelerator_frequency accelerator_interconnect_topology
accelerator_on-chip_memories hw_notes sw_notes system_type_detail
""".split()


class DescriptionTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._dir = self.create_tempdir().full_path

  def _write(self, text: str) -> str:
    path = os.path.join(self._dir, 'system.yaml')
    with open(path, 'w', encoding='utf-8') as file:
      file.write(text)
    return path

  def test_a_machine_without_accelerator(self):
    files = fake_machine.make(self._dir, fake_machine.SERVER)
    values = description.detect(files, {}, cuda.Cuda())
    self.assertEqual(values['host_processors_per_node'], '2')
    self.assertEqual(values['host_processor_core_count'], '2')
    self.assertEqual(values['accelerators_per_node'], '0')
    self.assertEqual(values['accelerator_model_name'], 'N/A')
    self.assertRegex(values['other_software_stack'], r'Python 3\.')
    missing = description.missing(
      dict.fromkeys(description.REQUIRED, '') | values
    )
    self.assertContainsSubset(
      missing,
      set(_BY_USER) | {'framework'},
      'The machine must tell the rest itself.',
    )

  def test_a_machine_with_gpus(self):
    files = fake_machine.make(self._dir, fake_machine.SERVER)
    nvml = fake_nvml.FakeNvml(devices=8)
    values = description.detect(files, {}, cuda.detect(nvml))
    self.assertEqual(values['accelerators_per_node'], '8')
    self.assertIn('CUDA 12.4', values['other_software_stack'])
    self.assertIn('driver 550.54', values['other_software_stack'])

  def test_a_tpu_host(self):
    files = fake_machine.make(
      self._dir, fake_machine.SERVER, fake_machine.TPU_V5E
    )
    values = description.detect(files, {}, cuda.Cuda())
    self.assertEqual(values['accelerator_model_name'], 'TPU v5e')
    self.assertEqual(values['accelerators_per_node'], '4')

  def test_this_machine(self):
    values = description.describe()
    self.assertCountEqual(values, description.REQUIRED)
    self.assertEqual(values, description.describe(description.THIS_MACHINE))
    self.assertContainsSubset(
      ('submitter', 'division', 'cooling'), description.missing(values)
    )
    full = description.describe(overrides=_BY_USER)
    self.assertEqual(full['cooling'], 'air')
    self.assertNotIn('cooling', description.missing(full))

  def test_a_whole_preset_takes_nothing_from_another_machine(self):
    files = fake_machine.make(self._dir, fake_machine.SERVER)
    elsewhere = description.detect(files, {}, cuda.Cuda())
    values = description.describe(
      'tpu_v5e_x4', {'cooling': 'liquid'}, elsewhere
    )
    self.assertEqual(values['host_processor_model_name'], 'AMD EPYC 7B13')
    self.assertEqual(values['accelerators_per_node'], '4')
    self.assertEqual(values['cooling'], 'liquid')
    self.assertEqual(values['operating_system'], '')
    self.assertCountEqual(
      description.missing(values | {'framework': 'JAX'}),
      [
        'submitter',
        'division',
        'host_networking',
        'host_networking_topology',
        'host_network_card_count',
        'operating_system',
      ],
    )

  def test_a_whole_preset_takes_the_rest_from_such_a_machine(self):
    files = fake_machine.make(
      self._dir, fake_machine.SERVER, fake_machine.TPU_V5E
    )
    here = description.detect(files, {}, cuda.Cuda())
    values = description.describe('tpu_v5e_x4', detected=here)
    self.assertEqual(values['host_processor_model_name'], 'AMD EPYC 7B13')
    self.assertEqual(values['operating_system'], here['operating_system'])
    self.assertEqual(values['host_network_card_count'], '4')

  def test_a_preset_of_an_accelerator_stands_in_this_machine(self):
    values = description.describe('h200_x1')
    self.assertEqual(values['accelerator_memory_capacity'], '141 GB')
    here = description.describe()
    for key in ('host_processor_model_name', 'operating_system'):
      self.assertEqual(values[key], here[key])

  def test_presets_name_their_source(self):
    self.assertContainsSubset(
      ('h200_x1', 'this_machine', 'tpu_v5e_x4'), description.preset_names()
    )
    for name in description.preset_names():
      preset = description.read_preset(name)
      self.assertNotEmpty(preset.about)
      if name != description.THIS_MACHINE:
        self.assertIn('mlcommons/inference_results_v', preset.source)

  def test_file_of_a_user(self):
    path = self._write('cooling: air\nhost_network_card_count: 2\n')
    self.assertEqual(
      description.read_file(path),
      {'cooling': 'air', 'host_network_card_count': 2},
    )
    path = self._write('{"cooling": "air"}')
    self.assertEqual(description.read_file(path), {'cooling': 'air'})

  def test_mistakes_are_reported(self):
    with self.assertRaisesRegex(ValueError, "no system 'tpu'.*tpu_v5e_x4"):
      description.describe('tpu')
    with self.assertRaisesRegex(ValueError, 'did you mean cooling'):
      description.describe(overrides={'cooling_': 'air'})
    for text, message in (
      ('- a\n', 'must contain values by key.*contains a list'),
      ('', 'contains a NoneType'),
      ('a: [', 'neither YAML nor JSON'),
      ('stats: x', 'system.yaml, line 1: .* did you mean status'),
      ('cooling: air\ncooling: oil', 'line 2: cooling is in line 1 too'),
      ('cooling: [air]', r"line 1: cooling is \['air'\]. Write a text"),
      ('\nnumber_of_nodes: two', "line 2: number_of_nodes is 'two'. .* whole"),
      ('number_of_nodes: -1', 'number_of_nodes is -1. Write a whole number'),
      ('accelerators_per_node: 1.5', 'accelerators_per_node is 1.5. Write'),
      ('1: x', "line 1: '1' is no key"),
    ):
      with self.assertRaisesRegex(ValueError, message):
        description.read_file(self._write(text))


class FieldsTest(absltest.TestCase):
  def test_keys_are_those_of_the_checker(self):
    self.assertLen(_REQUIRED, 35)
    self.assertCountEqual(description.REQUIRED, _REQUIRED)
    self.assertCountEqual(
      [
        name for name, field in description.REQUIRED.items() if not field.filled
      ],
      _MAY_BE_EMPTY,
    )

  def test_missing(self):
    values = dict.fromkeys(description.REQUIRED, 'N/A')
    self.assertEqual(description.missing(values), [])
    values['cooling'] = 'TODO'
    values['hw_notes'] = ''
    values['accelerators_per_node'] = 0
    del values['sw_notes']
    self.assertEqual(description.missing(values), ['cooling', 'sw_notes'])

  def test_a_network_system_needs_more(self):
    values = dict.fromkeys(description.REQUIRED, 'N/A') | {'is_network': 'true'}
    self.assertCountEqual(
      description.missing(values), set(description.NETWORK) - {'is_network'}
    )
    self.assertEqual(description.missing(values | {'is_network': 'false'}), [])

  def test_wrong_keys_and_values_are_reported(self):
    description.check({'division': 'open', 'status': '', 'filesystem': 'ext4'})
    with self.assertRaisesRegex(ValueError, 'did you mean cooling'):
      description.check({'coolin': 'air'})
    with self.assertRaisesRegex(
      ValueError, "status is 'Available'; it must be one of 'available'"
    ):
      description.check({'status': 'Available'})


if __name__ == '__main__':
  absltest.main()
