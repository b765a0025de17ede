"""Runs the short forms of heavy.py: an admin server that lacks CPU time."""

from absl.testing import absltest

from tests.chaos import heavy


class HeavyTest(absltest.TestCase):
  def test_starved_leader_refuses_no_call(self):
    result = heavy.starve(self.create_tempdir().full_path, 5.0)
    print(result)
    self.assertGreater(result.calls, 0)
    self.assertEmpty(result.failed)

  def test_huge_publishes_are_refused_without_side_effects(self):
    for overrides, code in (
      (300_000, 'RESOURCE_EXHAUSTED'),
      (5_000, 'INVALID_ARGUMENT'),
    ):
      directory = self.create_tempdir().full_path
      result = heavy.override(directory, overrides, 2)
      print(result)
      self.assertEqual(result.answers, [code, code])
      self.assertGreater(result.calls, 0)
      self.assertEmpty(result.failed)


if __name__ == '__main__':
  absltest.main()
