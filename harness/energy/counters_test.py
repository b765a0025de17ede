from absl.testing import absltest

from harness.energy import counters


class CountersTest(absltest.TestCase):
  def test_counter_that_begins_again(self):
    values = iter([900, 950, 20, 60])
    counter = counters.Counter('a', lambda: next(values), 0.5, size=1000)
    seen = []
    for _ in range(4):
      counter.update()
      seen.append(counter.joules)
    self.assertEqual(seen, [0.0, 25.0, 60.0, 80.0])

  def test_power_over_time(self):
    times, watts = iter([10.0, 12.0, 13.0]), iter([100.0, 200.0, 100.0])
    power = counters.Power('a', lambda: next(watts), lambda: next(times))
    seen = []
    for _ in range(3):
      power.update()
      seen.append(power.joules)
    self.assertEqual(seen, [0.0, 300.0, 450.0])


if __name__ == '__main__':
  absltest.main()
