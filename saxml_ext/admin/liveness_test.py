"""Tests of when a server is taken for dead."""

from absl.testing import absltest

from saxml_ext.admin import liveness


class LivenessTest(absltest.TestCase):

  def test_refused_for_half_a_second(self):
    live = liveness.Liveness()
    self.assertFalse(live.failed(0.0, 0.01, refused=True))
    self.assertFalse(live.failed(0.2, 0.21, refused=True))
    self.assertFalse(live.failed(0.4, 0.41, refused=True))
    self.assertTrue(live.failed(0.6, 0.61, refused=True))

  def test_silent_servers_get_longer(self):
    live = liveness.Liveness()
    self.assertFalse(live.failed(0, 10, refused=False))
    self.assertFalse(live.failed(10, 20, refused=False))
    self.assertTrue(live.failed(20, 30, refused=False))

  def test_one_failure_is_never_enough(self):
    live = liveness.Liveness()
    self.assertFalse(live.failed(0, 3600, refused=False))
    live.succeeded()
    self.assertFalse(live.failing)
    self.assertFalse(live.failed(3600, 7200, refused=True))
    self.assertTrue(live.failing)

  def test_success_starts_the_count_anew(self):
    live = liveness.Liveness()
    live.failed(0, 1, refused=True)
    live.succeeded()
    self.assertEqual(live.silent_for(5), 0)
    self.assertFalse(live.failed(5, 5.1, refused=True))
    self.assertEqual(live.silent_for(8), 3)


if __name__ == '__main__':
  absltest.main()
