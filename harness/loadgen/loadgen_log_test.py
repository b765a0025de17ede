import json
import os

from absl.testing import absltest

from harness.loadgen import loadgen_log


def _line(key: str, value, is_error: bool = False) -> str:
  metadata = {'is_error': is_error, 'is_warning': False}
  entry = {'key': key, 'value': value, 'metadata': metadata}
  return f':::MLLOG {json.dumps(entry)}\n'


class LoadgenLogTest(absltest.TestCase):
  def _write(self, detail: str) -> str:
    directory = self.create_tempdir().full_path
    for name, text in (
      (loadgen_log.DETAIL_LOG, detail),
      (loadgen_log.SUMMARY_LOG, 'Result is : VALID\n'),
    ):
      with open(os.path.join(directory, name), 'w', encoding='utf-8') as file:
        file.write(text)
    return directory

  def test_reads_a_valid_run(self):
    log = loadgen_log.read(
      self._write(
        _line('result_validity', 'VALID')
        + 'chatter\n'
        + _line('result_samples_per_second', 12.5)
      )
    )
    self.assertTrue(log.valid)
    self.assertEqual(log.values['result_samples_per_second'], 12.5)
    self.assertEqual(log.summary, 'Result is : VALID\n')

  def test_an_error_makes_it_invalid(self):
    log = loadgen_log.read(
      self._write(
        _line('error_invalid_config', 'two files', is_error=True)
        + _line('result_validity', 'VALID')
      )
    )
    self.assertFalse(log.valid)
    self.assertEqual(log.problems, ('error_invalid_config: two files',))

  def test_invalid_is_not_valid(self):
    log = loadgen_log.read(self._write(_line('result_validity', 'INVALID')))
    self.assertFalse(log.valid)

  def test_a_log_cut_off_is_refused(self):
    path = self._write(_line('a', 1) + ':::MLLOG {"key": "b", "val')
    with self.assertRaisesRegex(ValueError, 'detail.txt:2 was cut off'):
      loadgen_log.read(path)

  def test_tells_how_long_the_run_lasted(self):
    log = loadgen_log.read(
      self._write(
        _line('power_begin', '11-21-2026 23:59:55.073')
        + _line('power_end', '11-22-2026 00:00:34.716')
      )
    )
    self.assertAlmostEqual(log.seconds, 39.643)
    log = loadgen_log.read(self._write(_line('a', 1)))
    with self.assertRaisesRegex(ValueError, 'no power_begin. Use the logs'):
      _ = log.seconds

  def test_clear_leaves_other_files(self):
    directory = self._write(_line('a', 1))
    other = os.path.join(directory, 'notes.txt')
    with open(other, 'w', encoding='utf-8') as file:
      file.write('mine')
    loadgen_log.clear(directory)
    self.assertEqual(os.listdir(directory), ['notes.txt'])


class TimelineTest(absltest.TestCase):
  def test_written_and_read(self):
    times = [
      loadgen_log.Times(3, 0.0, 0.25, None, 1.5, 7),
      loadgen_log.Times(1, 0.5, 0.75, 1.0, 2.0, 0),
    ]
    path = os.path.join(
      self.create_tempdir().full_path, 'new', loadgen_log.TIMELINE
    )
    loadgen_log.write_timeline(path, times)
    self.assertEqual(loadgen_log.read_timeline(path), times)

  def test_another_file_is_refused(self):
    path = self.create_tempfile(content='a,b\n1,2\n').full_path
    with self.assertRaisesRegex(ValueError, 'is no timeline of a run'):
      loadgen_log.read_timeline(path)


if __name__ == '__main__':
  absltest.main()
