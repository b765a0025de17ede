import io

from absl.testing import absltest

from harness.benchmarks import llama
from harness.loadgen import loadgen_log
from harness.results import figures
from harness.rules import rounds
from harness.scenarios import load
from harness.scenarios import search
from serve import progress


class _System:
  """A stand-in for a system that holds `limit` queries/s.

  It returns logs with LoadGen's values. An Offline run with a lower target is
  too short and invalid, and so is a stream whose expected latency is too long.
  """

  def __init__(self, scenario: str, limit: float = 10.0):
    self._scenario = scenario
    self.limit = limit
    self.speeds: list[load.Speed] = []

  def run(self, speed: load.Speed, number: int) -> search.Trial:
    self.speeds.append(speed)
    assert number == len(self.speeds)
    values: dict[str, object] = {}
    if self._scenario == rounds.OFFLINE:
      valid = speed.target_qps >= self.limit
      values['result_samples_per_second'] = self.limit
    elif self._scenario == rounds.SERVER:
      valid = speed.target_qps <= self.limit
      values['result_99.00_percentile_latency_ns'] = 5e6
    else:
      # LoadGen prepares queries for twice min_duration, and each takes
      # 1000 / limit ms.
      valid = speed.latency_ms <= 2 * 1000 / self.limit
      latency = 1e9 / self.limit
      values['result_mean_latency_ns'] = latency
      values['result_90.00_percentile_latency_ns'] = latency
      values['result_mean_query_latency_ns'] = latency
      values['result_99.00_percentile_per_query_latency_ns'] = latency
    values['result_validity'] = 'VALID' if valid else 'INVALID'
    return search.Trial(loadgen_log.RunLog('d', '', values, ()))


def _trial(waits: list[float], validity: str = 'VALID') -> search.Trial:
  times = [
    loadgen_log.Times(i, float(i), float(i), None, i + wait, 0)
    for i, wait in enumerate(waits)
  ]
  log = loadgen_log.RunLog('d', '', {'result_validity': validity}, ())
  return search.Trial(log, list(reversed(times)))


class TrialTest(absltest.TestCase):
  def test_a_queue_that_grows_falls_behind(self):
    growing = _trial([0.1 * i for i in range(100)])
    self.assertTrue(growing.behind)
    self.assertFalse(growing.held)
    self.assertEqual(growing.verdict, 'VALID, but answers fall behind')
    steady = _trial([3.0, 5.0] * 50)
    self.assertTrue(steady.held)
    self.assertEqual(steady.verdict, 'VALID')

  def test_an_invalid_run(self):
    trial = _trial([3.0] * 9, 'INVALID')
    self.assertFalse(trial.held)
    self.assertEqual(trial.verdict, 'INVALID')
    values = trial.log.values
    values |= {'early_stopping_met': False, 'result_perf_constraints_met': True}
    self.assertFalse(trial.held)
    self.assertStartsWith(trial.verdict, 'INVALID by early stopping')
    values['result_perf_constraints_met'] = False
    self.assertEqual(trial.verdict, 'INVALID')

  def test_probe_in_words(self):
    self.assertEqual(
      search.probe_text(
        load.Speed(target_qps=3.0), 'INVALID', '99th percentile 9.0 ms'
      ),
      'asked for 3.00 samples/s: 99th percentile 9.0 ms, INVALID',
    )


class SearchTest(absltest.TestCase):
  def _search(self, scenario: str, start: load.Speed, limit: float = 10.0):
    system = _System(scenario, limit)
    shown = io.StringIO()
    outcome = search.search(
      scenario, start, system.run, progress.Progress(shown)
    )
    self.assertLen(outcome.probes, len(system.speeds))
    self.assertTrue(outcome.log.valid)
    for number in range(1, len(system.speeds) + 1):
      self.assertIn(f'probe {number}: asked for', shown.getvalue())
    return outcome, system

  def test_server_rate_is_found_from_below_and_above(self):
    for start in (1.0, 9.9, 10.0, 40.0):
      outcome, system = self._search(
        rounds.SERVER, load.Speed(target_qps=start)
      )
      self.assertLessEqual(outcome.speed.target_qps, 10.0)
      self.assertGreater(outcome.speed.target_qps, 10.0 / 1.06)
      # The last logs must be those of the found rate, which was held twice.
      self.assertEqual(system.speeds[-1], outcome.speed)
      self.assertEqual(system.speeds.count(outcome.speed), 2)

  def test_a_rate_that_is_held_only_once_is_lowered(self):
    system = _System(rounds.SERVER)

    def run(speed: load.Speed, number: int) -> search.Trial:
      # The first run at each rate above 8 is valid by chance.
      system.limit = 8.0 if speed in system.speeds else 10.0
      return system.run(speed, number)

    outcome = search.search(
      rounds.SERVER,
      load.Speed(target_qps=9.9),
      run,
      progress.Progress(io.StringIO()),
    )
    self.assertLess(outcome.speed.target_qps, 10.0)
    self.assertTrue(outcome.log.valid)
    repeated = [s for s in system.speeds if system.speeds.count(s) == 2]
    self.assertNotEmpty(repeated)
    self.assertNotIn(outcome.speed, repeated)

  def test_server_that_holds_nothing(self):
    with self.assertRaisesRegex(
      search.SearchError,
      r'no run was valid.* minutes: asked for 10\.00 samples/s: 99th',
    ):
      self._search(rounds.SERVER, load.Speed(target_qps=10.0), limit=0.01)

  def test_a_rate_above_a_limit_on_tokens_is_not_held(self):
    limits = llama.LLAMA.token_limits.get(rounds.INTERACTIVE)
    speeds = []

    def run(speed: load.Speed, number: int) -> search.Trial:
      # LoadGen reports all runs as valid. The time per token reaches 30 ms at
      # 10 queries/s, and the time to the first token 500 ms at 8.
      speeds.append(speed.target_qps)
      values = {
        'result_validity': 'VALID',
        'result_first_token_mean_latency_ns': 1,
        'result_time_to_output_token_mean': 1,
      }
      for percentile in figures.PERCENTILES:
        values |= {
          f'result_first_token_{percentile}_percentile_latency_ns': 62.5e6
          * speed.target_qps,
          f'result_time_per_output_token_{percentile}_percentile_ns': 3e6
          * speed.target_qps,
        }
      log = loadgen_log.RunLog('d', '', values, ())
      return search.Trial(log, (), limits)

    shown = io.StringIO()
    outcome = search.search(
      rounds.INTERACTIVE,
      load.Speed(target_qps=3.0),
      run,
      progress.Progress(shown),
    )
    self.assertBetween(outcome.speed.target_qps, 8 / 1.06, 8)
    self.assertEqual(speeds[-1], outcome.speed.target_qps)
    self.assertIn('VALID, but not below a limit on tokens', shown.getvalue())
    self.assertRegex(
      shown.getvalue(),
      r'99th percentile of TTFT 187.5 ms, 99th percentile of TPOT 9.0 ms, VALID',
    )

  def test_a_search_ends_in_time(self):
    for scenario, start in (
      (rounds.SERVER, load.Speed(target_qps=1.0)),
      (rounds.SERVER, load.Speed(target_qps=10.0)),
      (rounds.OFFLINE, load.Speed(target_qps=20.0)),
    ):
      system = _System(scenario)
      # Each probe takes 25 minutes.
      outcome = search.search(
        scenario,
        start,
        system.run,
        progress.Progress(io.StringIO()),
        clock=lambda: 1500.0 * len(system.speeds),
      )
      self.assertLessEqual(len(system.speeds), 5)
      self.assertLessEqual(outcome.speed.target_qps, 12.5)
    system = _System(rounds.SERVER, limit=0.01)
    with self.assertRaisesRegex(search.SearchError, 'within 60 minutes'):
      search.search(
        rounds.SERVER,
        load.Speed(target_qps=40.0),
        system.run,
        progress.Progress(io.StringIO()),
        clock=lambda: 1500.0 * len(system.speeds),
      )
    self.assertLen(system.speeds, 3)

  def test_repeats_end_in_time(self):
    system = _System(rounds.SERVER)

    def run(speed: load.Speed, number: int) -> search.Trial:
      # The first run is valid by chance.
      system.limit = 0.01 if system.speeds else 10.0
      return system.run(speed, number)

    with self.assertRaisesRegex(search.SearchError, 'no rate was held twice'):
      search.search(
        rounds.SERVER,
        load.Speed(target_qps=9.9),
        run,
        progress.Progress(io.StringIO()),
        clock=lambda: 1500.0 * len(system.speeds),
      )
    # Three trials begin within an hour, and one repeat in the half hour after.
    self.assertLen(system.speeds, 4)

  def test_offline_is_repeated_until_it_is_long_enough(self):
    outcome, system = self._search(rounds.OFFLINE, load.Speed(target_qps=2.0))
    self.assertLen(system.speeds, 2)
    self.assertEqual(outcome.speed.target_qps, 12.5)

  def test_streams(self):
    for scenario in (rounds.SINGLE_STREAM, rounds.MULTI_STREAM):
      outcome, system = self._search(scenario, load.Speed(latency_ms=500.0))
      self.assertLen(system.speeds, 2)
      self.assertEqual(outcome.speed.latency_ms, 160.0)
      self.assertIn('percentile 100.0 ms', outcome.probes[-1])


if __name__ == '__main__':
  absltest.main()
