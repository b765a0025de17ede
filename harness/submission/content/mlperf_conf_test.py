import pathlib
import shutil
import subprocess
import unittest

from absl.testing import absltest

from harness.loadgen import loadgen_log
from harness.submission.content import mlperf_conf


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
    self.assertEqual(mlperf_conf.official(folder, 'v4.0'), b'# of v4.0\n')
    self.assertEqual(mlperf_conf.official(folder, 'v4.1'), b'# of v4.1\n')
    self.assertIsNone(mlperf_conf.official(folder, 'v3.1'))

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
    lines = mlperf_conf.from_log(log, 'gptj', 'Offline').decode().splitlines()
    self.assertEqual(
      lines[1:],
      [
        'gptj.Offline.min_duration = 600000',
        'gptj.Offline.qsl_rng_seed = 7',
        'gptj.Offline.sample_concatenate_permutation = 1',
      ],
    )


if __name__ == '__main__':
  absltest.main()
