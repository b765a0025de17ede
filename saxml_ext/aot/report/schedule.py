"""A simulation of this server's scheduler, with estimated times for a clock.

Follows `server/scheduling/scheduler.py` and `engine/runner.py`: free slots are
refilled whenever one has finished, requests of one bucket in runs; a prefill
of each batch of one bucket; then all slots decode until one finishes.
It leaves out the network, cancelled requests, jitter, and the host's time except
for `times.host` per decode call.
"""

import collections
from collections.abc import Callable, Mapping, Sequence
import dataclasses

import numpy as np

from saxml_ext.aot.report import lengths as lengths_lib
from saxml_ext.aot.report import times as times_lib
from saxml_ext.engine.attention import slot_parts
from saxml_ext.engine.parallel import prompt_queue

# As in the scheduler: a run of one bucket, in times the slots; steps of a call
# while a request that arrives could have a slot.
_SLOTS_PER_RUN = 4
_SHORT_CALL = 8
# As in the engine: steps of a call while prompts wait.
_STEPS_BESIDE_PREFILL = 4


@dataclasses.dataclass(frozen=True)
class Policy:
  """How requests are batched.

  Attributes:
    slots: requests decoded together.
    buckets: lengths that prompts are padded to, ascending.
    rows: prompts prefilled together, ascending choices; multiples of `parts`.
    steps_per_call: most steps of one decode call.
    parts: of the slots, which prefill prompts of their own beside each other.
  """

  slots: int
  buckets: tuple[int, ...]
  rows: tuple[int, ...]
  steps_per_call: int = 32
  parts: int = 1


@dataclasses.dataclass(frozen=True)
class Outcome:
  """What a simulated run gave.

  Attributes:
    samples_per_second: over the whole run.
    latencies: [N] seconds from arrival to answer.
    prefill_share: of the time, spent in prefills.
    busy: mean share of the slots that decode, over the steps.
    padding: prefilled tokens over tokens of prompts.
    calls: The decode calls.
    steps: The decode steps in these calls.
  """

  samples_per_second: float
  latencies: np.ndarray
  prefill_share: float
  busy: float
  padding: float
  calls: int
  steps: int


def run(
  requests: lengths_lib.Lengths,
  times: times_lib.Times,
  policy: Policy,
  arrivals: np.ndarray | None = None,
) -> Outcome:
  """Simulates a run.

  Args:
    requests: what is asked, in order of arrival.
    times: of the programs.
    policy: how they are batched.
    arrivals: [N] ascending seconds; None: all at 0, as in Offline.
  """
  return _Server(requests, times, policy, arrivals).run()


class _Server:
  """One run's state."""

  def __init__(
    self,
    requests: lengths_lib.Lengths,
    times: times_lib.Times,
    policy: Policy,
    arrivals: np.ndarray | None,
  ):
    self._times = times
    self._policy = policy
    self._requests = requests
    count = len(requests)
    self._arrivals = np.zeros(count) if arrivals is None else arrivals
    self._buckets = [
      lengths_lib.bucket(n, policy.buckets) for n in requests.prompts
    ]
    self._waiting: dict[int, collections.deque[int]] = {
      bucket: collections.deque() for bucket in policy.buckets
    }
    sizes = tuple(rows // policy.parts for rows in policy.rows)
    self._batches = slot_parts.Batches(policy.slots, policy.parts, sizes)
    # Requests by slot, as in the engine.
    self._queue: prompt_queue.PromptQueue[int] = prompt_queue.PromptQueue(
      self._batches
    )
    self._run = (policy.buckets[0], 0)  # Bucket, and what is left of its run.
    self._arrived = 0
    self._now = 0.0
    # Of each slot: its request, and steps until it is done; 0: it is free.
    self._request = np.zeros(policy.slots, int)
    self._left = np.zeros(policy.slots, int)
    self._ends = np.zeros(count)
    self._prefilling = 0.0
    self._prefilled = 0
    self._calls = 0
    self._steps = 0
    self._slot_steps = 0

  def run(self) -> Outcome:
    while self._step():
      pass
    total = max(self._ends.max(), 1e-12)
    return Outcome(
      samples_per_second=len(self._ends) / total,
      latencies=self._ends - self._arrivals,
      prefill_share=self._prefilling / total,
      busy=self._slot_steps / max(1, self._steps * self._policy.slots),
      padding=self._prefilled / self._requests.prompts.sum(),
      calls=self._calls,
      steps=self._steps,
    )

  def _step(self) -> bool:
    """A round of the scheduler; False when all is done."""
    self._admit()
    work = self._left.any() or any(self._waiting.values()) or self._queue
    if not work:
      if self._arrived == len(self._arrivals):
        return False
      self._now = self._arrivals[self._arrived]
      return True
    self._fill()
    self._decode()
    return True

  def _admit(self) -> None:
    while (
      self._arrived < len(self._arrivals)
      and self._arrivals[self._arrived] <= self._now
    ):
      self._waiting[self._buckets[self._arrived]].append(self._arrived)
      self._arrived += 1

  def _fill(self) -> None:
    held = list(self._queue.slots)
    free = np.setdiff1d(np.flatnonzero(self._left == 0), held)
    taken = 0
    while taken < len(free) and any(self._waiting.values()):
      bucket = self._next_bucket()
      request = self._waiting[bucket].popleft()
      self._queue.add(bucket, {int(free[taken]): request}, self._steps)
      taken += 1
    idle = not self._left.any()
    for bucket, batch in self._queue.take(self._steps, hurry=idle):
      self._prefill(bucket, batch)

  def _next_bucket(self) -> int:
    bucket, left = self._run
    if not left or not self._waiting[bucket]:
      oldest = min((w[0], b) for b, w in self._waiting.items() if w)
      bucket, left = oldest[1], _SLOTS_PER_RUN * self._policy.slots
    self._run = (bucket, left - 1)
    return bucket

  def _prefill(self, bucket: int, batch: Mapping[int, int]) -> None:
    """Prefills a batch of requests, by slot."""
    rows = len(self._batches.rows(list(batch)))
    seconds = self._times.prefill(rows, bucket)
    self._now += seconds
    self._prefilling += seconds
    self._prefilled += rows * bucket
    for slot, request in batch.items():
      self._request[slot] = request
      # The first token is chosen by the prefill.
      self._left[slot] = self._requests.outputs[request] - 1
      if not self._left[slot]:
        self._finish([slot])

  def _decode(self) -> None:
    busy = np.flatnonzero(self._left)
    if not len(busy):
      return
    most = self._policy.steps_per_call
    if len(busy) < self._policy.slots:
      most = min(most, _SHORT_CALL)
    if self._queue:
      most = min(most, _STEPS_BESIDE_PREFILL)
    steps = int(min(most, self._left[busy].min()))
    self._now += self._times.host + self._times.call
    self._now += steps * self._times.step
    self._calls += 1
    self._steps += steps
    self._slot_steps += steps * len(busy)
    self._left[busy] -= steps
    self._finish(busy[self._left[busy] == 0])

  def _finish(self, slots: Sequence[int] | np.ndarray) -> None:
    self._ends[self._request[slots]] = self._now


def poisson(count: int, rate: float, seed: int = 1) -> np.ndarray:
  """Arrivals [N] in seconds at `rate` per second, as LoadGen's Server has."""
  rng = np.random.default_rng(seed)
  return np.cumsum(rng.exponential(1 / rate, count))


def highest_rate(
  served: Callable[[float], np.ndarray],
  most: float,
  bound: float,
  percentile: float = 99,
  rounds: int = 9,
) -> float:
  """The highest rate whose latencies stay within a bound, by bisection.

  Args:
    served: called with a rate; the latencies [N] in seconds.
    most: samples per second that cannot be exceeded: Offline's.
    bound: seconds.
    percentile: of the latencies, which must not exceed the bound.
    rounds: halvings; the result is exact to `most` / 2**rounds.
  """
  low, high = 0.0, most
  for _ in range(rounds):
    rate = (low + high) / 2
    late = np.percentile(served(rate), percentile)
    low, high = (rate, high) if late <= bound else (low, rate)
  return low
