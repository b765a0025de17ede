import hashlib
import pathlib

from absl.testing import absltest

from harness.submission.content import truncation


class TruncationTest(absltest.TestCase):
  def log(self, size: int) -> pathlib.Path:
    data = bytes(ord('a') + i % 26 for i in range(size))
    return pathlib.Path(self.create_tempfile(content=data, mode='wb').full_path)

  def test_short_log_stays(self):
    log = self.log(4095)
    self.assertEqual(truncation.truncated(log), log.read_bytes())

  def test_long_log_keeps_its_ends(self):
    log = self.log(100_000)
    whole = log.read_bytes()
    short = truncation.truncated(log)
    self.assertEqual(short, whole[:4096] + b'\n\n...\n\n' + whole[-4096:])
    self.assertLess(len(short), truncation.MAX_BYTES)

  def test_ends_may_overlap_as_those_of_the_official_tool(self):
    log = self.log(5000)
    self.assertLen(truncation.truncated(log), 4096 + 7 + 4096)

  def test_hash_is_of_the_whole_log(self):
    log = self.log(100_000)
    digest = hashlib.sha256(log.read_bytes()).hexdigest()
    self.assertEqual(truncation.hash_line(log), f'hash={digest}\n')


if __name__ == '__main__':
  absltest.main()
