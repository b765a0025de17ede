"""Compares the latency bounds of the estimates with the harness's rules."""

from absl.testing import absltest

from benchmarks.tpu_estimate import benchmarks
from harness.benchmarks import gptj
from harness.benchmarks import llama


class BoundsTest(absltest.TestCase):
  def test_token_bounds_match_the_harness(self):
    scenarios = [
      name
      for name in llama.LLAMA.scenarios
      if llama.LLAMA.token_limits.get(name)
    ]
    self.assertSameElements(benchmarks.LLAMA.bounds, scenarios)
    for name, bounds in benchmarks.LLAMA.bounds.items():
      limits = llama.LLAMA.token_limits.get(name)
      assert limits is not None
      self.assertEqual(
        (1e3 * bounds.ttft, 1e3 * bounds.tpot), (limits.ttft_ms, limits.tpot_ms)
      )

  def test_latency_bound_matches_the_harness(self):
    (bounds,) = benchmarks.GPTJ.bounds.values()
    self.assertEqual(1e3 * bounds.latency, gptj.GPTJ.server_latency_ms)


if __name__ == '__main__':
  absltest.main()
