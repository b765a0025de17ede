"""Tests of find."""

import os

from absl.testing import absltest

from harness.pages import find
from harness.pages.testing import jobs


class FindTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.root = self.create_tempdir().full_path
    self.entry = jobs.entry()
    self.directory = jobs.write(
      os.path.join(self.root, 'a', 'server'), self.entry
    )

  def test_by_directory(self):
    self.assertEqual(find.job(self.directory, 'nowhere'), self.directory)

  def test_by_id(self):
    for name in (self.entry.id, self.entry.id[:4]):
      self.assertEqual(find.job(name, self.root), self.directory)

  def test_unknown(self):
    for name in ('ffffffff', self.entry.id[:3]):
      with self.assertRaisesRegex(FileNotFoundError, 'neither a directory nor'):
        find.job(name, self.root)

  def test_a_directory_without_a_result(self):
    with self.assertRaisesRegex(FileNotFoundError, 'holds no result.json'):
      find.job(self.root, self.root)

  def test_two_results_of_one_id(self):
    jobs.write(os.path.join(self.root, 'b'), self.entry)
    with self.assertRaisesRegex(ValueError, 'names 2 results'):
      find.job(self.entry.id, self.root)

  def test_damaged_results_are_told_only_if_none_is_found(self):
    damaged = os.path.join(self.root, 'damaged')
    os.makedirs(damaged)
    with open(os.path.join(damaged, 'result.json'), 'w') as file:
      file.write('{')
    self.assertEqual(find.job(self.entry.id, self.root), self.directory)
    with self.assertRaisesRegex(FileNotFoundError, 'no result of the harness'):
      find.job('ffffffff', self.root)

  def test_a_result_that_is_being_replaced_does_not_count(self):
    jobs.write(os.path.join(self.root, 'a', 'server.previous'), self.entry)
    self.assertEqual(find.job(self.entry.id, self.root), self.directory)


if __name__ == '__main__':
  absltest.main()
