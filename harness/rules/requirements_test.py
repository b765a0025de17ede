from absl.testing import absltest

from harness.rules import requirements
from harness.rules import rounds


class RequirementsTest(absltest.TestCase):
  def test_changes_of_each_round(self):
    for rule, last_without in (
      (requirements.results_hold_all, 'v5.1'),
      (lambda name: not requirements.needs_mlperf_conf(name), 'v4.1'),
      (lambda name: requirements.needs_calibration(name, 'closed'), 'v5.0'),
      (lambda name: not requirements.takes_short_runs(name), 'v4.0'),
      (lambda name: not requirements.takes_parts_of_the_set(name), 'v5.1'),
    ):
      names = list(rounds.ROUNDS)
      self.assertEqual(
        [name for name in names if not rule(name)],
        names[: names.index(last_without) + 1],
      )
    self.assertFalse(requirements.needs_calibration('v6.1', 'open'))


if __name__ == '__main__':
  absltest.main()
