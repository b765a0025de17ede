from absl.testing import absltest

from harness.loadgen import conf_file
from harness.loadgen import rounds


class ConfFileTest(absltest.TestCase):
  def _file(self, text: str) -> str:
    return self.create_tempfile(content=text).full_path

  def test_every_round_is_known_by_its_seed(self):
    for each in rounds.ROUNDS.values():
      path = self._file(
        f'# Seeds.\n*.*.qsl_rng_seed = {each.qsl_seed}\n*.*.other = 1\n'
      )
      self.assertEqual(conf_file.round_of(path), each.name)

  def test_other_files_are_refused(self):
    with self.assertRaisesRegex(ValueError, 'has no line'):
      conf_file.round_of(self._file('gptj.Offline.target_qps = 1\n'))
    with self.assertRaisesRegex(ValueError, 'seed 12, which is of none of'):
      conf_file.round_of(self._file('*.*.qsl_rng_seed = 12\n'))


if __name__ == '__main__':
  absltest.main()
