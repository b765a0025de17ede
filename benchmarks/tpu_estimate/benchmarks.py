"""Defines the benchmarks of the estimates: their lengths and latency bounds."""

from collections.abc import Mapping
import dataclasses
import math

import numpy as np

from benchmarks.tpu_estimate import lengths as lengths_lib
from benchmarks.tpu_estimate import schedule
from benchmarks.tpu_estimate.compiled import costs


@dataclasses.dataclass(frozen=True)
class Bounds:
  """The bounds on the 99th percentiles of a scenario, in seconds.

  Attributes:
    latency: The bound on the time from arrival to answer.
    ttft: The bound on the time to the first token.
    tpot: The bound on the time per token after the first.
  """

  latency: float = math.inf
  ttft: float = math.inf
  tpot: float = math.inf

  @property
  def on_tokens(self) -> bool:
    """True if the bounds require answers that stream."""
    return math.isfinite(self.ttft)

  def keeps(self, latencies: np.ndarray) -> bool:
    """Returns True if latencies [N] are within the bound."""
    return bool(np.percentile(latencies, 99) <= self.latency)

  def valid(self, outcome: schedule.Outcome) -> bool:
    """Returns True if a run is within all bounds."""
    return self.keeps(outcome.latencies) and all(
      np.percentile(seconds, 99) <= bound
      for seconds, bound in (
        (outcome.first_tokens, self.ttft),
        (outcome.per_token, self.tpot),
      )
    )

  def __str__(self) -> str:
    if self.on_tokens:
      ttft, tpot = 1e3 * self.ttft, 1e3 * self.tpot
      return f'p99 TTFT {ttft:g} ms, TPOT {tpot:g} ms'
    return f'p99 within {self.latency:g} s'


@dataclasses.dataclass(frozen=True)
class Benchmark:
  """A benchmark of MLPerf Inference.

  Attributes:
    lengths: The assumed lengths of its requests.
    bounds: The bounds by scenario with arrivals at a rate.
  """

  lengths: lengths_lib.Assumed
  bounds: Mapping[str, Bounds]

  @property
  def counts_tokens(self) -> bool:
    """True if the results are in tokens per second."""
    return any(bounds.on_tokens for bounds in self.bounds.values())


SERVER = 'Server'
GPTJ = Benchmark(lengths_lib.ASSUMED, {SERVER: Bounds(latency=20.0)})
# A test compares the bounds with those of the harness.
LLAMA = Benchmark(
  lengths_lib.LLAMA,
  {
    SERVER: Bounds(ttft=2.0, tpot=0.1),
    'Interactive': Bounds(ttft=0.5, tpot=0.03),
  },
)


def find(programs: costs.Set) -> Benchmark:
  """Returns the benchmark of a set: Llama's if its feed-forward is gated."""
  gated = programs.model.get('architecture', {}).get('gated', False)
  return LLAMA if gated else GPTJ
