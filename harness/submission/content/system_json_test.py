import json

from absl.testing import absltest

from harness.submission.content import system_json
from harness.submission.testing import jobs


def _whole(**values: str) -> dict[str, str]:
  fixed = {
    'submitter': 'Example',
    'division': 'open',
    'system_name': 'box',
    'system_type': 'edge',
  }
  return jobs.system_description() | fixed | values


class SystemJsonTest(absltest.TestCase):
  def test_names_of_folders(self):
    for name, expected in (
      ('tpu_v5e_x4', 'tpu_v5e_x4'),
      ('Two Xeons, 512 GB', 'Two_Xeons_512_GB'),
      ('../..', ''),
      ('.hidden', 'hidden'),
    ):
      self.assertEqual(system_json.system_id(name), expected)

  def test_flags_go_before_the_file_and_the_file_before_detection(self):
    record = system_json.merged(
      {'cooling': 'detected', 'framework': 'detected', 'status': 'rdi'},
      {'cooling': 'given', 'status': 'preview'},
      {'status': 'available'},
      {},
    )
    self.assertEqual(record['framework'], 'detected')
    self.assertEqual(record['cooling'], 'given')
    self.assertEqual(record['status'], 'available')
    self.assertEqual(record['accelerator_on-chip_memories'], '')

  def test_notes_are_added(self):
    record = system_json.merged(
      {'hw_notes': 'Power limit 250 W'}, {}, {}, {'hw_notes': 'ECC off'}
    )
    self.assertEqual(record['hw_notes'], 'Power limit 250 W. ECC off')
    notes = {'sw_notes': 'Nightly', 'hw_notes': ''}
    record = system_json.merged({}, {}, {}, notes)
    self.assertEqual(record['sw_notes'], 'Nightly')

  def test_values_become_texts(self):
    record = system_json.merged(
      {'accelerators_per_node': 0, 'is_network': True, 'cooling': None},
      {},
      {},
      {},
    )
    self.assertEqual(record['accelerators_per_node'], '0')
    self.assertEqual(record['is_network'], 'True')
    self.assertNotIn('cooling', record)

  def test_whole_description_has_no_problem(self):
    self.assertEqual(system_json.problems(_whole()), [])
    self.assertEqual(json.loads(system_json.text(_whole())), _whole())

  def test_all_that_is_missing_is_told_at_once(self):
    found = system_json.problems(_whole(cooling='', framework='TODO'))
    self.assertLen(found, 1)
    self.assertIn('lacks cooling, framework:', found[0])

  def test_counts_are_whole_numbers(self):
    self.assertRegex(
      system_json.problems(_whole(accelerators_per_node='N/A'))[0],
      "accelerators_per_node .* is 'N/A'; it must be a whole number",
    )

  def test_values_of_a_few_choices(self):
    self.assertRegex(
      system_json.problems(_whole(status='on sale'))[0], "status is 'on sale'"
    )

  def test_networked_system(self):
    found = system_json.problems(_whole(is_network='true', network_rate='10'))
    self.assertLen(found, 1)
    self.assertIn('nic_loadgen', found[0])
    self.assertNotIn('network_rate', found[0])


if __name__ == '__main__':
  absltest.main()
