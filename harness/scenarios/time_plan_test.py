from absl.testing import absltest

from harness.benchmarks import llama
from harness.loadgen import run as run_lib
from harness.rules import rounds
from harness.scenarios import load as load_lib
from harness.scenarios import time_plan


def _work(scenario: str, speed, modes=run_lib.MODES, **changes):
  values = {
    'benchmark': llama.LLAMA,
    'sample_count': 13368,
    'execution_mode': load_lib.VALID,
    'tests': 0,
  } | changes
  load = load_lib.Load(
    scenario=scenario,
    round='v6.1',
    execution_mode=values.pop('execution_mode'),
    equal_issue=values.pop('equal_issue', None),
  )
  return time_plan.Work(load=load, modes=modes, speed=speed, **values)


class TimePlanTest(absltest.TestCase):
  def _between(self, work: time_plan.Work, low: float, high: float) -> None:
    range_secs = work.range_secs
    self.assertAlmostEqual(range_secs[0], low, delta=0.01 * low)
    self.assertAlmostEqual(range_secs[1], high, delta=0.01 * high)

  def test_server_sends_whole_passes_at_its_rate(self):
    # 600 s at 30 queries/s are 18,000 queries, which are two passes.
    work = _work(
      rounds.SERVER, load_lib.Speed(target_qps=30), [run_lib.PERFORMANCE]
    )
    self._between(work, 2 * 13368 / 30, 2 * 13368 / 30)
    work = _work(
      rounds.SERVER,
      load_lib.Speed(target_qps=30),
      [run_lib.PERFORMANCE],
      equal_issue=False,
    )
    self._between(work, 600, 600)

  def test_both_modes_add_up(self):
    work = _work(rounds.SERVER, load_lib.Speed(target_qps=20))
    self._between(work, 2 * 13368 / 20, 2 * 13368 / 20)

  def test_a_measured_speed_has_a_range(self):
    # A target of 12.5 was derived from 10 samples/s.
    work = _work(
      rounds.OFFLINE, load_lib.Speed(target_qps=12.5), [run_lib.ACCURACY]
    )
    self._between(work, 1336.8 / 1.25, 1336.8 * 1.25)
    work = _work(
      rounds.OFFLINE, load_lib.Speed(target_qps=12.5), [run_lib.PERFORMANCE]
    )
    self._between(work, 1336.8 / 1.25, 1336.8 * 1.25)
    work = _work(
      rounds.SINGLE_STREAM,
      load_lib.Speed(latency_ms=200),
      benchmark=llama.LLAMA_EDGE,
      sample_count=5000,
    )
    # The 5,000 samples take 1,000 s in either mode.
    self._between(work, 2 * 1000 / 1.25, 2 * 1000 * 1.25)

  def test_a_search_takes_several_runs_but_ends_in_time(self):
    work = _work(
      rounds.SERVER,
      load_lib.Speed(target_qps=100),
      [load_lib.FIND_PERFORMANCE],
      equal_issue=False,
    )
    self._between(work, 5 * 600, 5400 + 600)

  def test_other_execution_modes_are_shorter(self):
    work = _work(
      rounds.SERVER,
      load_lib.Speed(target_qps=2),
      [run_lib.PERFORMANCE],
      execution_mode=load_lib.FAST,
    )
    self._between(work, 60, 60)
    work = _work(
      rounds.SERVER,
      load_lib.Speed(target_qps=2),
      [run_lib.PERFORMANCE, load_lib.COMPLIANCE],
      execution_mode=load_lib.TEST,
      tests=1,
    )
    self._between(work, 2 * 2.5, 2 * 2.5)

  def test_the_table_has_a_total(self):
    works = [
      _work(scenario, load_lib.Speed(target_qps=30), [run_lib.PERFORMANCE])
      for scenario in (rounds.SERVER, rounds.INTERACTIVE)
    ]
    lines = time_plan.text(works).splitlines()
    self.assertRegex(lines[0], 'Time plan +minutes +from the speed')
    self.assertRegex(lines[2], 'Interactive +14.9 to 14.9 +30.00 samples/s')
    self.assertRegex(lines[3], 'total +29.7 to 29.7')


if __name__ == '__main__':
  absltest.main()
