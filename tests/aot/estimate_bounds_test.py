"""Compares the latency bounds of the estimates with the harness's rules."""

from absl.testing import absltest

from benchmarks.tpu_estimate import benchmarks
from harness.rules import rounds


class BoundsTest(absltest.TestCase):
  def test_token_bounds_match_the_harness(self):
    scenarios = [
      name
      for name in rounds.scenarios_of(rounds.LLAMA)
      if rounds.token_limits(rounds.LLAMA, name)
    ]
    self.assertSameElements(benchmarks.LLAMA.bounds, scenarios)
    for name, bounds in benchmarks.LLAMA.bounds.items():
      limits = rounds.token_limits(rounds.LLAMA, name)
      assert limits is not None
      self.assertEqual(
        (1e3 * bounds.ttft, 1e3 * bounds.tpot), (limits.ttft_ms, limits.tpot_ms)
      )

  def test_latency_bound_matches_the_harness(self):
    (bounds,) = benchmarks.GPTJ.bounds.values()
    self.assertEqual(
      1e3 * bounds.latency, rounds.SERVER_LATENCY_MS[rounds.GPTJ]
    )


if __name__ == '__main__':
  absltest.main()
