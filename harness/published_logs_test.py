import json
import os

from absl.testing import absltest
import numpy as np

from harness import published_logs


class PublishedLogsTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._dir = self.create_tempdir().full_path

  def _job(self, directory: str) -> None:
    """Logs of an accuracy and of a performance run."""
    data = np.array([7, 50256], np.int64).tobytes().hex()
    for run, text in (
      ('accuracy', json.dumps([{'seq_id': 0, 'qsl_idx': 3, 'data': data}])),
      ('performance/run_1', '[]'),
    ):
      place = os.path.join(directory, run)
      os.makedirs(place)
      for name in ('mlperf_log_accuracy.json', 'mlperf_log_detail.txt'):
        with open(os.path.join(place, name), 'w', encoding='utf-8') as file:
          file.write(text)

  def _files(self) -> list[str]:
    return sorted(
      os.path.relpath(os.path.join(place, name), self._dir)
      for place, _, names in os.walk(self._dir)
      for name in names
      if not os.path.relpath(place, self._dir).startswith(('acc', 'perf'))
    )

  def test_one_scenario(self):
    self._job(self._dir)
    published_logs.write(self._dir, ['Offline'], extra_dir=True, answers=True)
    self.assertEqual(
      self._files(),
      [
        'Offline_accuracy/mlperf_log_accuracy.json',
        'Offline_accuracy/mlperf_log_detail.txt',
        'Offline_performance/mlperf_log_accuracy.json',
        'Offline_performance/mlperf_log_detail.txt',
        'sax_accuracy.json',
      ],
    )
    with open(os.path.join(self._dir, 'sax_accuracy.json')) as file:
      self.assertEqual(json.load(file), [{'qsl_idx': 3, 'data': '7,50256'}])

  def test_without_a_directory_and_answers(self):
    self._job(self._dir)
    published_logs.write(self._dir, ['Server'], extra_dir=False, answers=False)
    self.assertEqual(
      self._files(), ['mlperf_log_accuracy.json', 'mlperf_log_detail.txt']
    )

  def test_several_scenarios_of_which_one_did_not_run(self):
    self._job(os.path.join(self._dir, 'Server'))
    published_logs.write(
      self._dir, ['Offline', 'Server'], extra_dir=True, answers=True
    )
    self.assertTrue(os.path.isdir(os.path.join(self._dir, 'Server_accuracy')))
    self.assertFalse(
      os.path.exists(os.path.join(self._dir, 'Offline_accuracy'))
    )


if __name__ == '__main__':
  absltest.main()
