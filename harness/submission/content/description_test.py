import json

from absl.testing import absltest

from harness.submission.content import description
from harness.submission.testing import jobs


class DescriptionTest(absltest.TestCase):
  def test_names_of_folders(self):
    for name, expected in (
      ('tpu_v5e_x4', 'tpu_v5e_x4'),
      ('Two Xeons, 512 GB', 'Two_Xeons_512_GB'),
      ('../..', ''),
      ('.hidden', 'hidden'),
    ):
      self.assertEqual(description.system_id(name), expected)

  def test_flags_go_before_the_file_and_the_file_before_detection(self):
    record = description.merged(
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
    record = description.merged(
      {'hw_notes': 'Power limit 250 W'}, {}, {}, {'hw_notes': 'ECC off'}
    )
    self.assertEqual(record['hw_notes'], 'Power limit 250 W. ECC off')
    record = description.merged(
      {}, {}, {}, {'sw_notes': 'Nightly', 'hw_notes': ''}
    )
    self.assertEqual(record['sw_notes'], 'Nightly')

  def test_whole_description_has_no_problem(self):
    self.assertEqual(description.problems(jobs.system_description()), [])
    self.assertLen(description.MEANINGFUL + description.OPTIONAL, 35)

  def test_all_that_is_missing_is_told_at_once(self):
    record = jobs.system_description() | {'cooling': '', 'framework': None}
    found = description.problems(record)
    self.assertLen(found, 1)
    self.assertIn('lacks cooling, framework:', found[0])

  def test_numbers_become_texts(self):
    record = description.merged(
      {'accelerators_per_node': 0, 'is_network': True, 'cooling': None},
      {},
      {},
      {},
    )
    self.assertEqual(record['accelerators_per_node'], '0')
    self.assertEqual(record['is_network'], 'True')
    self.assertNotIn('cooling', record)

  def test_counts_are_whole_numbers(self):
    record = jobs.system_description() | {'accelerators_per_node': 'N/A'}
    self.assertRegex(
      description.problems(record)[0],
      "accelerators_per_node .* is 'N/A'; it must be a whole number",
    )

  def test_status(self):
    record = jobs.system_description()
    self.assertEqual(description.problems(record | {'status': 'RDI'}), [])
    self.assertRegex(
      description.problems(record | {'status': 'on sale'})[0],
      "'on sale' .* available, preview, rdi",
    )

  def test_networked_system(self):
    record = jobs.system_description() | {'is_network': 'True'}
    found = description.problems(record | {'network_rate': '10'})
    self.assertLen(found, 1)
    self.assertIn('nic_loadgen', found[0])
    self.assertNotIn('network_rate', found[0])

  def test_file(self):
    path = self.create_tempfile(content='{"cooling": "air"}').full_path
    self.assertEqual(description.read(path), {'cooling': 'air'})
    for text, pattern in (('{', 'is no JSON'), ('[]', 'holds no JSON object')):
      path = self.create_tempfile(content=text).full_path
      with self.assertRaisesRegex(ValueError, pattern):
        description.read(path)

  def test_text(self):
    record = jobs.system_description()
    self.assertEqual(json.loads(description.text(record)), record)


if __name__ == '__main__':
  absltest.main()
