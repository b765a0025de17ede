import os

from absl.testing import absltest

from harness.scenarios import load
from harness.scenarios import search


class TargetsTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._path = os.path.join(
      self.create_tempdir().full_path, 'new', 'targets.json'
    )

  def test_kept_and_found(self):
    self.assertIsNone(search.find(self._path, 'a'))
    self.assertIsNone(search.find(None, 'a'))
    search.keep(self._path, 'a', load.Speed(target_qps=3.5))
    search.keep(self._path, 'b', load.Speed(latency_ms=7.0))
    search.keep(self._path, 'a', load.Speed(target_qps=4.5))
    speed = search.find(self._path, 'a')
    self.assertEqual(speed.speed, load.Speed(target_qps=4.5))
    self.assertRegex(speed.when, r'^20\d\d-')
    self.assertEqual(
      search.find(self._path, 'b').speed, load.Speed(latency_ms=7.0)
    )

  def test_a_damaged_file_is_reported(self):
    search.keep(self._path, 'a', load.Speed(target_qps=3.5))
    with open(self._path, 'w', encoding='utf-8') as file:
      file.write('{')
    with self.assertRaisesRegex(ValueError, 'is damaged .* Remove it'):
      search.find(self._path, 'a')


if __name__ == '__main__':
  absltest.main()
