from absl.testing import absltest

from serve import programs
from tests.cell import job


class JobTest(absltest.TestCase):
  def test_programs_are_recognized_by_any_command_line(self):
    folder = '/x/offline.runfiles/_main/saxml_ext/server'
    for line in (
      ['python3.11', f'{folder}/server.py', '--port=1'],
      [f'{folder}/server', '--port=1'],
      ['python3', '-P', '-m', 'saxml_ext.server.server', '--port=1'],
      [
        f'{folder}/_server.venv/bin/python3',
        f'{folder}/_server_stage2_bootstrap.py',
        '--port=1',
      ],
    ):
      self.assertTrue(job.is_program(line, programs.MODEL_SERVER), line)
      self.assertFalse(job.is_program(line, programs.ADMIN_SERVER), line)


if __name__ == '__main__':
  absltest.main()
