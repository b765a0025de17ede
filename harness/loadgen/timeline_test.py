import dataclasses
import os

from absl.testing import absltest

from harness.loadgen import timeline


class TimelineTest(absltest.TestCase):
  def test_written_and_read(self):
    times = [
      timeline.Times(3, 0.0, 0.25, None, 1.5, 7),
      timeline.Times(1, 0.5, 0.75, 1.0, 2.0, 0),
    ]
    kept = timeline.Timeline()
    for each in times:
      kept.add(*dataclasses.astuple(each))
    path = os.path.join(self.create_tempdir().full_path, 'new', timeline.FILE)
    self.assertEqual(kept.samples, times)
    kept.write(path)
    self.assertEqual(timeline.read(path), times)

  def test_another_file_is_refused(self):
    path = self.create_tempfile(content='a,b\n1,2\n').full_path
    with self.assertRaisesRegex(ValueError, 'is no timeline of a run'):
      timeline.read(path)


if __name__ == '__main__':
  absltest.main()
