from absl.testing import absltest

from harness.description import fields

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


class FieldsTest(absltest.TestCase):
  def test_keys_are_those_of_the_checker(self):
    self.assertLen(_REQUIRED, 35)
    self.assertCountEqual(fields.REQUIRED, _REQUIRED)
    self.assertCountEqual(
      [name for name, field in fields.REQUIRED.items() if not field.filled],
      _MAY_BE_EMPTY,
    )

  def test_missing(self):
    values = dict.fromkeys(fields.REQUIRED, 'N/A')
    self.assertEqual(fields.missing(values), [])
    values['cooling'] = 'TODO'
    values['hw_notes'] = ''
    values['accelerators_per_node'] = 0
    del values['sw_notes']
    self.assertEqual(fields.missing(values), ['cooling', 'sw_notes'])

  def test_a_network_system_needs_more(self):
    values = dict.fromkeys(fields.REQUIRED, 'N/A') | {'is_network': 'true'}
    self.assertCountEqual(
      fields.missing(values), set(fields.NETWORK) - {'is_network'}
    )
    self.assertEqual(fields.missing(values | {'is_network': 'false'}), [])

  def test_wrong_keys_and_values_are_told(self):
    fields.check({'division': 'open', 'status': '', 'filesystem': 'ext4'})
    with self.assertRaisesRegex(ValueError, 'did you mean cooling'):
      fields.check({'coolin': 'air'})
    with self.assertRaisesRegex(
      ValueError, "status is 'Available'; it must be one of 'available'"
    ):
      fields.check({'status': 'Available'})


if __name__ == '__main__':
  absltest.main()
