"""A simulation of Sax's static batching, for a check of the estimates.

A batch is prefilled together at the bucket of its longest prompt, decodes until
its last request is done, and only then the next one begins. Google's harness
sorted an Offline query by the prompts' lengths (`issue_queries` of
closed/Google/code/gptj-99/backend.py in MLCommons' inference_results_v3.1). A
Server's batch is taken when it is full, or when its oldest request has waited
BATCH_WAIT_SECS, in order of arrival.
"""

from collections.abc import Mapping
import dataclasses

import numpy as np

from saxml_ext.aot.report import lengths as lengths_lib
from saxml_ext.aot.report import times as times_lib


@dataclasses.dataclass(frozen=True)
class Policy:
  """How Sax was set.

  Attributes:
    batch: requests together; a batch that is not full costs as much.
    buckets: lengths that prompts are padded to, ascending.
    wait: seconds that a request waits for company.
    longest: steps that every batch decodes; 0: until its last request is done.
  """

  batch: int
  buckets: tuple[int, ...]
  wait: float = 0.0
  longest: int = 0


def batch_seconds(
  prompts: np.ndarray,
  outputs: np.ndarray,
  times: Mapping[int, times_lib.Times],
  policy: Policy,
) -> float:
  """Seconds of one batch.

  Args:
    prompts: [B] tokens.
    outputs: [B] tokens.
    times: by bucket; programs of a bucket keep KV of its length.
    policy: how it is served.
  """
  bucket = lengths_lib.bucket(int(prompts.max()), policy.buckets)
  steps = max(policy.longest, int(outputs.max())) - 1
  of_bucket = times[bucket]
  prefill = of_bucket.prefill(of_bucket.rows[-1], bucket)
  repeats = -(-policy.batch // of_bucket.rows[-1])
  call = of_bucket.host + of_bucket.call
  return repeats * prefill + call + steps * of_bucket.step


def offline(
  requests: lengths_lib.Lengths,
  times: Mapping[int, times_lib.Times],
  policy: Policy,
) -> float:
  """Samples per second of a query of all requests, sorted by length."""
  order = np.argsort(requests.prompts, kind='stable')
  total = 0.0
  for begin in range(0, len(order), policy.batch):
    batch = order[begin : begin + policy.batch]
    total += batch_seconds(
      requests.prompts[batch], requests.outputs[batch], times, policy
    )
  return len(order) / total


def server(
  requests: lengths_lib.Lengths,
  times: Mapping[int, times_lib.Times],
  policy: Policy,
  arrivals: np.ndarray,
) -> np.ndarray:
  """Latencies [N] in seconds of requests that arrive at `arrivals` [N]."""
  ends = np.zeros(len(arrivals))
  now = 0.0
  begin = 0
  while begin < len(arrivals):
    full = begin + policy.batch - 1
    ready = arrivals[begin] + policy.wait
    if full < len(arrivals):
      ready = min(ready, arrivals[full])
    now = max(now, ready)
    waiting = int(np.searchsorted(arrivals, now, side='right'))
    batch = slice(begin, min(waiting, begin + policy.batch))
    now += batch_seconds(
      requests.prompts[batch], requests.outputs[batch], times, policy
    )
    ends[batch] = now
    begin = batch.stop
  return ends - arrivals
