"""Runs the short form of crashes.py; `full` runs the full form."""

from absl.testing import absltest

from tests.chaos import crashes


class CrashesTest(absltest.TestCase):
  def test_acknowledged_changes_survive(self):
    result = crashes.run(self.create_tempdir().full_path, 6)
    self.assertEqual(result.intact, result.rounds)
    self.assertGreater(result.acknowledged, 0)


if __name__ == '__main__':
  absltest.main()
