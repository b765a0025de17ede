"""Tests hostile ids and paths against a real admin server."""

from absl.testing import absltest

from tests.chaos import hostile


class HostileTest(absltest.TestCase):
  def test_hostile_requests_are_refused_and_no_file_is_opened(self):
    result = hostile.run(self.create_tempdir().full_path)
    self.assertGreaterEqual(result.names, 60)
    self.assertGreater(result.watched, 0)
    self.assertEmpty(result.accepted)
    self.assertEmpty(result.opened)


if __name__ == '__main__':
  absltest.main()
