import hashlib
import pathlib
import shutil
import subprocess
import unittest

from absl.testing import absltest

from harness.loadgen import loadgen_log
from harness.submission.content import log_files


def _git(folder: pathlib.Path, *arguments: str) -> None:
  identity = ('-c', 'user.name=A', '-c', 'user.email=a@example.org')
  subprocess.run(['git', *identity, *arguments], cwd=folder, check=True)


class MlperfConfTest(absltest.TestCase):
  @unittest.skipUnless(shutil.which('git'), 'There is no git here.')
  def test_the_rounds_own_file_comes_from_its_tag(self):
    folder = pathlib.Path(self.create_tempdir().full_path)
    _git(folder, 'init', '-q')
    (folder / 'mlperf.conf').write_text('# of v4.0\n', 'utf-8')
    _git(folder, 'add', '.')
    _git(folder, 'commit', '-qm', 'one')
    _git(folder, 'tag', 'v4.0')
    _git(folder, 'rm', '-q', 'mlperf.conf')
    (folder / 'loadgen').mkdir()
    (folder / 'loadgen' / 'mlperf.conf').write_text('# of v4.1\n', 'utf-8')
    _git(folder, 'add', '.')
    _git(folder, 'commit', '-qm', 'two')
    _git(folder, 'tag', 'v4.1')
    self.assertEqual(log_files.official_conf(folder, 'v4.0'), b'# of v4.0\n')
    self.assertEqual(log_files.official_conf(folder, 'v4.1'), b'# of v4.1\n')
    self.assertIsNone(log_files.official_conf(folder, 'v3.1'))

  def test_settings_of_the_log(self):
    log = loadgen_log.RunLog(
      '',
      '',
      {
        'effective_min_duration_ms': 600000,
        'effective_qsl_rng_seed': 7,
        'effective_sample_concatenate_permutation': True,
        'result_validity': 'VALID',
      },
      (),
    )
    lines = log_files.conf_of_log(log, 'gptj', 'Offline').decode().splitlines()
    self.assertEqual(
      lines[1:],
      [
        'gptj.Offline.min_duration = 600000',
        'gptj.Offline.qsl_rng_seed = 7',
        'gptj.Offline.sample_concatenate_permutation = 1',
      ],
    )


class TruncationTest(absltest.TestCase):
  def log(self, size: int) -> pathlib.Path:
    data = bytes(ord('a') + i % 26 for i in range(size))
    return pathlib.Path(self.create_tempfile(content=data, mode='wb').full_path)

  def test_short_log_is_unchanged(self):
    log = self.log(4095)
    self.assertEqual(log_files.truncated(log), log.read_bytes())

  def test_long_log_keeps_its_ends(self):
    log = self.log(100_000)
    whole = log.read_bytes()
    short = log_files.truncated(log)
    self.assertEqual(short, whole[:4096] + b'\n\n...\n\n' + whole[-4096:])
    self.assertLess(len(short), log_files.MAX_BYTES)

  def test_ends_may_overlap_as_those_of_the_official_tool(self):
    log = self.log(5000)
    self.assertLen(log_files.truncated(log), 4096 + 7 + 4096)

  def test_hash_is_of_the_whole_log(self):
    log = self.log(100_000)
    digest = hashlib.sha256(log.read_bytes()).hexdigest()
    self.assertEqual(log_files.hash_line(log), f'hash={digest}\n')


if __name__ == '__main__':
  absltest.main()
