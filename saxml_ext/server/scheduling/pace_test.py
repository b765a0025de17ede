"""Tests of `Pace`."""

from absl.testing import absltest

from saxml_ext.server.scheduling import admission


class PaceTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.now = 100.0
    self.pace = admission.Pace(lambda: self.now)

  def test_pace_is_unknown_at_first(self):
    self.assertEqual(self.pace.seconds_per_request(), 0.1)

  def test_pace_is_the_mean_of_the_last_answers(self):
    for _ in range(1000):
      self.now += 0.5
      self.pace.done(2)
    self.assertAlmostEqual(self.pace.seconds_per_request(), 0.25, delta=0.01)

  def test_pace_grows_without_answers(self):
    self.pace.done(4)
    self.now += 4.0
    self.assertEqual(self.pace.seconds_per_request(), 1.0)
    self.now += 4.0
    self.assertEqual(self.pace.seconds_per_request(), 2.0)

  def test_pace_is_bounded(self):
    self.pace.done(64)
    self.assertEqual(self.pace.seconds_per_request(), 0.01)
    self.now += 1e6
    self.assertEqual(self.pace.seconds_per_request(), 10.0)


if __name__ == '__main__':
  absltest.main()
