"""Simulates serving with estimated times.

`run` simulates this server's scheduler (`server/scheduling/scheduler.py` and
`engine/runner.py`). When a request finishes, its slot is refilled. Requests are
taken in runs from one bucket, and each batch of a bucket has one prefill. Then
all slots decode until one finishes. The simulation leaves out the network,
cancelled requests, jitter, and the host's time except for `Times.host` per
decode call and `Times.message` per message of a stream.

If requests stream, a decode call has the steps of one message. A prompt is
prefilled as a whole between two calls, because the compiled sets have no
programs for chunks. Its first token is reported after the next call.

`StaticBatching` simulates Sax, to check the estimates. A batch is prefilled
together at the bucket of its longest prompt, and decodes until its last request
is done. Only then does the next batch start. Google's harness sorted an Offline
query by the lengths of its prompts (`issue_queries` of
closed/Google/code/gptj-99/backend.py in MLCommons' inference_results_v3.1). In
the Server scenario, requests are batched in order of arrival. A batch starts
when it is full, or when its oldest request has waited for BATCH_WAIT_SECS.
"""

import collections
from collections.abc import Callable, Mapping, Sequence
import dataclasses
import math

import numpy as np

from benchmarks.tpu_estimate import lengths as lengths_lib
from benchmarks.tpu_estimate import rules
from saxml_ext.engine.attention import slot_parts

# These match the scheduler: the length of a run from one bucket as a multiple
# of the slots, and the steps of a call while there are free slots for new
# requests, if calls do not overlap. On TPUs they do, so that a call costs no
# time of the device, and requests wait for fewer steps than here.
_SLOTS_PER_RUN = 4
_SHORT_CALL = 8
# This matches the engine: the steps of a call while prompts wait.
_STEPS_BESIDE_PREFILL = 4


@dataclasses.dataclass(frozen=True)
class Policy:
  """The rules for batching requests.

  Attributes:
    slots: The number of requests that are decoded together.
    buckets: The lengths that prompts are padded to, ascending.
    rows: The allowed numbers of prompts that are prefilled together, ascending.
      They are multiples of `parts`.
    steps_per_call: The maximum number of steps in a decode call.
    parts: The number of parts of the slots. The parts prefill separate prompts
      in parallel.
    stream_interval: The decode steps between two messages of a stream; 0 if no
      request streams.
  """

  slots: int
  buckets: tuple[int, ...]
  rows: tuple[int, ...]
  steps_per_call: int = 32
  parts: int = 1
  stream_interval: int = 0


@dataclasses.dataclass(frozen=True)
class Outcome:
  """The result of a simulated run.

  Attributes:
    samples_per_second: The rate over the whole run.
    latencies: The seconds [N] from arrival to answer.
    first_tokens: The seconds [N] from arrival to the report of the first token.
    per_token: The seconds [N] per token after the first, as in LoadGen; 0 for
      answers of one token.
    prefill_share: The share of the time that was spent in prefills.
    busy: The mean share of the slots that decode, over the steps.
    padding: The number of prefilled tokens divided by the prompts' tokens.
    calls: The number of decode calls.
    steps: The number of decode steps in these calls.
  """

  samples_per_second: float
  latencies: np.ndarray
  first_tokens: np.ndarray
  per_token: np.ndarray
  prefill_share: float
  busy: float
  padding: float
  calls: int
  steps: int


def run(
  requests: lengths_lib.Lengths,
  times: rules.Times,
  policy: Policy,
  arrivals: np.ndarray | None = None,
) -> Outcome:
  """Simulates a run.

  Args:
    requests: The requests, in order of arrival.
    times: The times of the programs.
    policy: The rules for batching.
    arrivals: The ascending arrival times [N] in seconds. If it is None, all
      requests arrive at 0, as in Offline.
  """
  server = _Server(requests, times, policy, arrivals)
  while server.step():
    pass
  return server.outcome()


class _Server:
  """The state of a simulated run."""

  def __init__(
    self,
    requests: lengths_lib.Lengths,
    times: rules.Times,
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
    # The queue maps slots to requests, as in the engine.
    self._queue: slot_parts.PromptQueue[int] = slot_parts.PromptQueue(
      self._batches
    )
    self._run = (policy.buckets[0], 0)  # The bucket and the rest of its run.
    self._arrived = 0
    self._now = 0.0
    # Each slot's request, and its remaining steps. A free slot has 0 steps.
    self._request = np.zeros(policy.slots, int)
    self._left = np.zeros(policy.slots, int)
    self._firsts = np.full(count, np.inf)
    self._ends = np.zeros(count)
    self._prefilling = 0.0
    self._prefilled = 0
    self._calls = 0
    self._steps = 0
    self._slot_steps = 0

  def outcome(self) -> Outcome:
    total = max(self._ends.max(), 1e-12)
    return Outcome(
      samples_per_second=len(self._ends) / total,
      latencies=self._ends - self._arrivals,
      first_tokens=self._firsts - self._arrivals,
      per_token=(self._ends - self._firsts)
      / np.maximum(self._requests.outputs - 1, 1),
      prefill_share=self._prefilling / total,
      busy=self._slot_steps / max(1, self._steps * self._policy.slots),
      padding=self._prefilled / self._requests.prompts.sum(),
      calls=self._calls,
      steps=self._steps,
    )

  def step(self) -> bool:
    """Runs a round of the scheduler, and returns False when all is done."""
    arrived = int(np.searchsorted(self._arrivals, self._now, side='right'))
    for request in range(self._arrived, arrived):
      self._waiting[self._buckets[request]].append(request)
    self._arrived = arrived
    work = self._left.any() or any(self._waiting.values()) or self._queue
    if not work:
      if self._arrived == len(self._arrivals):
        return False
      self._now = self._arrivals[self._arrived]
      return True
    self._fill()
    self._decode()
    return True

  def _fill(self) -> None:
    if not (self._queue or any(self._waiting.values())):
      return
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
    """Prefills a batch of requests, which are given by slot."""
    rows = len(self._batches.rows(list(batch)))
    seconds = self._times.prefill(rows, bucket)
    self._now += seconds
    self._prefilling += seconds
    self._prefilled += rows * bucket
    for slot, request in batch.items():
      self._request[slot] = request
      # The prefill already chooses the first token.
      self._left[slot] = self._requests.outputs[request] - 1
      if not self._left[slot]:
        self._finish([slot])

  def _decode(self) -> None:
    busy = np.flatnonzero(self._left)
    if not len(busy):
      return
    streams = self._policy.stream_interval
    most = self._policy.steps_per_call
    if streams:
      most = min(most, streams)
    elif self._queue:
      most = min(most, _STEPS_BESIDE_PREFILL)
    elif len(busy) < self._policy.slots:
      most = min(most, _SHORT_CALL)
    least = int(self._left[busy].min())
    steps = min(most, least)
    times, idle = self._times, self._policy.slots - len(busy)
    seconds = times.host + times.call + steps * (times.step - idle * times.idle)
    calls = 1
    if streams:
      seconds += len(busy) * times.message
      if not self._queue:
        # Nothing changes until a request arrives or finishes.
        calls = least // steps
        for arrival in self._arrivals[self._arrived : self._arrived + 1]:
          wait = math.ceil((arrival - self._now) / seconds)
          calls = min(calls, max(1, wait))
    requests = self._request[busy]
    self._firsts[requests] = np.minimum(
      self._firsts[requests], self._now + seconds
    )
    self._now += calls * seconds
    self._calls += calls
    self._steps += calls * steps
    self._slot_steps += calls * steps * len(busy)
    self._left[busy] -= calls * steps
    self._finish(busy[self._left[busy] == 0])

  def _finish(self, slots: Sequence[int] | np.ndarray) -> None:
    requests = self._request[slots]
    self._ends[requests] = self._now
    self._firsts[requests] = np.minimum(self._firsts[requests], self._now)


def poisson(count: int, rate: float, seed: int = 1) -> np.ndarray:
  """Returns Poisson arrival times [N] in seconds, as in LoadGen's Server."""
  rng = np.random.default_rng(seed)
  return np.cumsum(rng.exponential(1 / rate, count))


def highest_rate(valid: Callable[[float], bool], most: float) -> float:
  """Returns the highest rate at which a run is valid, or 0.

  The bisection is exact to `most` / 512.

  Args:
    valid: The function that returns True if a run at a rate is valid.
    most: The upper limit of the rate, which is Offline's.
  """
  low, high = 0.0, most
  for _ in range(9):
    rate = (low + high) / 2
    low, high = (rate, high) if valid(rate) else (low, rate)
  return low


@dataclasses.dataclass(frozen=True)
class StaticBatching:
  """Simulates serving with Sax's static batches.

  Attributes:
    batch: The number of requests in a batch. A partial batch costs as much.
    buckets: The lengths that prompts are padded to, ascending.
    wait: The seconds that a request waits for others.
    longest: The number of steps that every batch decodes. With 0, a batch ends
      with its last request.
  """

  batch: int
  buckets: tuple[int, ...]
  wait: float = 0.0
  longest: int = 0

  def _seconds(
    self,
    requests: lengths_lib.Lengths,
    chosen: np.ndarray | slice,
    times: Mapping[int, rules.Times],
  ) -> float:
    """Returns the seconds of one batch of chosen requests."""
    longest = int(requests.prompts[chosen].max())
    bucket = lengths_lib.bucket(longest, self.buckets)
    steps = max(self.longest, int(requests.outputs[chosen].max())) - 1
    t = times[bucket]
    rows = t.rows[-1]
    repeats = -(-self.batch // rows)
    prefills = repeats * t.prefill(rows, bucket)
    return prefills + t.host + t.call + steps * t.step

  def offline(
    self, requests: lengths_lib.Lengths, times: Mapping[int, rules.Times]
  ) -> float:
    """Returns the samples/s of a query of all requests, sorted by length.

    Args:
      requests: The requests.
      times: The times by bucket. The programs of a bucket hold KV of its
        length.
    """
    order = np.argsort(requests.prompts, kind='stable')
    total = sum(
      self._seconds(requests, order[begin : begin + self.batch], times)
      for begin in range(0, len(order), self.batch)
    )
    return len(order) / total

  def server(
    self,
    requests: lengths_lib.Lengths,
    times: Mapping[int, rules.Times],
    arrivals: np.ndarray,
  ) -> np.ndarray:
    """Returns the latencies [N] in seconds, given the requests' arrival times.

    Args:
      requests: The requests.
      times: The times by bucket, as in `offline`.
      arrivals: The ascending arrival times [N] in seconds.
    """
    ends = np.zeros(len(arrivals))
    now = 0.0
    begin = 0
    while begin < len(arrivals):
      full = begin + self.batch - 1
      ready = arrivals[begin] + self.wait
      if full < len(arrivals):
        ready = min(ready, arrivals[full])
      now = max(now, ready)
      waiting = int(np.searchsorted(arrivals, now, side='right'))
      batch = slice(begin, min(waiting, begin + self.batch))
      now += self._seconds(requests, batch, times)
      ends[batch] = now
      begin = batch.stop
    return ends - arrivals
