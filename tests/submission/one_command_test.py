"""Tests making a submission by one command, as a user does."""

import os
import pathlib

from absl.testing import absltest

from tests.submission import commands


class OneCommandTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._dir = pathlib.Path(self.create_tempdir().full_path)
    (self._dir / 'mine.yaml').write_text(commands.DESCRIPTION)
    self._output = self._dir / 'submission'

  def _run(self, submission: str) -> tuple[int, str]:
    return commands.run(
      'harness/main',
      {
        'cache_dir': self._dir / 'cache',
        'scenario': 'SingleStream',
        'round': 'v4.0',
        'system': 'engine',
        'sample_count': 8,
        'min_duration': 1,
        'quiet': True,
        'submission': submission,
      },
    )

  def test_the_short_form_of_an_open_submission(self):
    who = '--submitter=Example --system_name=vm --model_name=tiny-gptj'
    code, output = self._run(f'{who} --output={self._output}')
    # The description of the machine is incomplete, but the results are kept.
    self.assertEqual(code, 1, output)
    self.assertIn('The system description lacks status', output)
    self.assertIn('The results are kept', output)
    self.assertFalse(self._output.exists())
    description = self._dir / 'mine.yaml'
    code, output = self._run(
      f'{who} --system_description={description} --output={self._output} --tar'
    )
    self.assertEqual(code, 0, output)
    self.assertIn('--rerun runs the job again', output)  # Nothing ran again.
    self.assertIn('open submission to v4.0: 1 results', output)
    self._assert_tree(self._output / 'open' / 'Example')
    self.assertTrue(os.path.isfile(f'{self._output}.tar.gz'))

  def _assert_tree(self, root: pathlib.Path) -> None:
    result = root / 'results' / 'vm' / 'tiny-gptj' / 'SingleStream'
    summary = result / 'performance' / 'run_1' / 'mlperf_log_summary.txt'
    self.assertIn('Result is : VALID', summary.read_text())
    accuracy = (result / 'accuracy' / 'accuracy.txt').read_text()
    self.assertRegex(accuracy, r"'rouge1': [\d.]+")
    self.assertRegex(accuracy, r'(?m)^hash=[0-9a-f]{64}$')
    self.assertTrue((root / 'systems' / 'vm.json').is_file())
    self.assertIn('gptj-99', (root / 'model_mapping.json').read_text())


if __name__ == '__main__':
  absltest.main()
