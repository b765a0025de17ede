import collections
import shutil
from unittest import mock

from absl.testing import absltest

from harness import errors
from harness.scenarios import session

_Usage = collections.namedtuple('_Usage', 'total used free')


class DiskTest(absltest.TestCase):
  def _end(self, free: int, error: Exception | None = None) -> None:
    usage = _Usage(10**9, 10**9 - free, free)
    with (
      mock.patch.object(shutil, 'disk_usage', return_value=usage),
      session.disk_errors('/results'),
    ):
      if error:
        raise error

  def test_a_full_disk_is_blamed(self):
    for error in (
      ValueError('cut off'),
      errors.HarnessError('exit code 1'),
      None,
    ):
      with self.assertRaisesRegex(
        session.DiskError, 'disk of /results is full, 17 bytes .* --results_dir'
      ):
        self._end(17, error)

  def test_other_failures_stay_what_they_are(self):
    with self.assertRaisesRegex(ValueError, 'cut off'):
      self._end(10**8, ValueError('cut off'))
    self._end(10**8)
    with session.disk_errors(self.create_tempdir().full_path):
      pass


if __name__ == '__main__':
  absltest.main()
