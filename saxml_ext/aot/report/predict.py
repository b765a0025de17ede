"""Predicts samples per second of this server, and of Sax as submitted.

All results are estimates. A rule (`rules.py`) estimates the times of programs,
and serving is simulated (`schedule.py`).
"""

import collections
from collections.abc import Callable, Mapping
import dataclasses

import numpy as np

from saxml_ext.aot.report import lengths as lengths_lib
from saxml_ext.aot.report import rules
from saxml_ext.aot.report import schedule
from saxml_ext.aot.report.compiled import costs

# The Server scenario of GPT-J in MLPerf Inference requires 99 of 100 queries
# within 20 s.
LATENCY_BOUND = 20.0


@dataclasses.dataclass(frozen=True)
class Prediction:
  """The predicted samples per second by one rule.

  Attributes:
    offline: The samples/s in Offline.
    server: The samples/s in Server, or None if it was not requested.
    outcome: The outcome of the simulated Offline run, or None for static
      batching.
  """

  offline: float
  server: float | None
  outcome: schedule.Outcome | None = None


@dataclasses.dataclass(frozen=True)
class Published:
  """A published MLPerf result on four v5e chips (gptj-99, closed).

  Attributes:
    name: The name of the round.
    source: The path of its logs.
    buckets: The buckets of the served model.
    offline: The measured samples/s in Offline.
    server: The measured samples/s in Server.
  """

  name: str
  source: str
  buckets: tuple[int, ...]
  offline: float
  server: float


# The buckets are those of GPTJ4BS32Int8Opt10Early in v3.1's code, and of
# ...Wait40MB6Offline in the branch mlperf4.0.
PUBLISHED = (
  Published(
    'v3.1',
    'mlcommons/inference_results_v3.1 closed/Google/results/TPU-v5e-4_SAX',
    (512, 1024, 1919),
    9.81226,
    7.13,
  ),
  Published(
    'v4.0',
    'mlcommons/inference_results_v4.0 closed/Google/results/tpu_v5e_x4',
    (512, 1024, 1536, 1919),
    10.1502,
    7.24897,
  ),
)
_SAX_BATCH = 32
_SAX_WAIT = 4.0
_SAX_LONGEST = 128


@dataclasses.dataclass(frozen=True)
class MeasuredStep:
  """A published time between tokens of another server, without our programs.

  Attributes:
    slots: The number of concurrent requests.
    tokens: The tokens of each prompt, and of each answer.
    seconds: The time between two tokens of a request.
  """

  slots: int
  tokens: int
  seconds: float

  @property
  def requests(self) -> lengths_lib.Lengths:
    """The requests of the measurement, which all have the same length."""
    size = np.array([self.tokens])
    return lengths_lib.Lengths(size, size, MEASURED_SOURCE)


# Llama 3.3 70B in bfloat16 on eight v6e chips. The rule's constants were fixed
# before these figures were compared with its predictions.
MEASURED_SOURCE = 'AI-Hypercomputer/tpu-recipes, inference/trillium/vLLM'
_MEASURED_SIZES = {'num_layers': 80, 'model_dim': 8192, 'hidden_dim': 28672}
_MEASURED_ON = 'v6e 2x4'
_MEASURED = {
  step.slots: step
  for step in (
    MeasuredStep(64, 1000, 23.1e-3),
    MeasuredStep(128, 1000, 30.7e-3),
  )
}


def measured_step(programs: costs.Set) -> MeasuredStep | None:
  """Returns the measurement of a set's model, slots and chips, or None."""
  same = all(programs.model[key] == n for key, n in _MEASURED_SIZES.items())
  if not same or programs.topology != _MEASURED_ON:
    return None
  same = programs.weights == programs.kv == 'bfloat16'
  return _MEASURED.get(programs.slots) if same else None


def policy(
  programs: costs.Set, buckets: tuple[int, ...] = ()
) -> schedule.Policy:
  """Returns the batching policy for a set's programs.

  Args:
    programs: The set. The policy uses all of its rows.
    buckets: The lengths that prompts are padded to; empty for the set's own
      lengths. Times of other lengths are interpolated.
  """
  return schedule.Policy(
    slots=programs.slots,
    parts=programs.parts,
    buckets=buckets or tuple(sorted({n for _, n in programs.prefills})),
    rows=tuple(sorted({rows for rows, _ in programs.prefills})),
  )


def of_set(
  programs: costs.Set,
  requests: lengths_lib.Lengths,
  rule: rules.Rule,
  server: bool = True,
  buckets: tuple[int, ...] = (),
) -> Prediction:
  """Returns the prediction for this server with a set.

  Args:
    programs: The set.
    requests: The requests.
    rule: The rule for the times.
    server: True to estimate the Server scenario too.
    buckets: The lengths that prompts are padded to, as in `policy`.
  """
  requests = requests.decoded(rule.steps)
  seconds = rules.times(programs, rule, requests)
  how = policy(programs, buckets)
  outcome = schedule.run(requests, seconds, how)
  offline = outcome.samples_per_second
  if not server:
    return Prediction(offline, None, outcome)

  def latencies(arrivals: np.ndarray) -> np.ndarray:
    return schedule.run(requests, seconds, how, arrivals).latencies

  return Prediction(offline, _server(requests, offline, latencies), outcome)


def _server(
  requests: lengths_lib.Lengths,
  offline: float,
  latencies: Callable[[np.ndarray], np.ndarray],
) -> float:
  """Returns the samples/s in Server, from the latencies at given arrivals."""
  return schedule.highest_rate(
    lambda rate: latencies(schedule.poisson(len(requests), rate)),
    offline,
    LATENCY_BOUND,
  )


def shares(
  programs: costs.Set, requests: lengths_lib.Lengths, central: Prediction
) -> Mapping[str, float]:
  """Returns the share of `rules.PARTS` and of the host in Offline's time.

  Args:
    programs: The set. Prompts are padded to its own lengths.
    requests: The requests of the run.
    central: The prediction by the central rule.
  """
  rule, outcome = rules.CENTRAL, central.outcome
  if outcome is None:
    raise ValueError('static batching has no shares of the time.')
  requests = requests.decoded(rule.steps)
  where, slots = rules.topology_of(programs), rules.live(programs, requests)
  how = policy(programs)
  counts = collections.Counter(
    lengths_lib.bucket(n, how.buckets) for n in requests.prompts
  )
  cost = costs.Cost()
  for (rows, length), program in programs.prefills.items():
    if rows == how.rows[-1]:
      cost += program.once.times(counts[length])
  decode = programs.programs[f'decode {programs.slots}']
  assert decode.step is not None  # An outcome has steps.
  prefill, once, step = (
    rules.parts(each, where, rule, slots)
    for each in (cost, decode.once, decode.step)
  )
  total = len(requests) / central.offline
  scale = outcome.prefill_share / max(sum(prefill.values()), 1e-12)
  found = {
    part: scale * prefill[part]
    + (outcome.calls * once[part] + outcome.steps * step[part]) / total
    for part in rules.PARTS
  }
  return {**found, 'host': outcome.calls * rule.host / total}


def of_sax(
  by_bucket: Mapping[int, costs.Set],
  published: Published,
  requests: lengths_lib.Lengths,
  rule: rules.Rule,
  server: bool = True,
) -> Prediction:
  """Returns the rule's prediction for a published configuration of Sax.

  Args:
    by_bucket: The programs of each bucket, for batches of 32. Times of missing
      buckets are interpolated between neighbors.
    published: The published result, which determines the buckets.
    requests: The requests.
    rule: The rule for the times.
    server: True to estimate the Server scenario too.
  """
  requests = requests.decoded(rule.steps)
  sizes = sorted(by_bucket)
  own = np.array([lengths_lib.bucket(n, sizes) for n in requests.prompts])
  known = {}
  for bucket in sizes:
    # A batch reads only the KV of its own prompts.
    here = own == bucket if bucket in own else own > 0
    padded = dataclasses.replace(
      requests, prompts=requests.prompts[here], outputs=requests.outputs[here]
    )
    known[bucket] = rules.times(by_bucket[bucket], rule, padded)
  seconds = {bucket: _between(known, bucket) for bucket in published.buckets}
  how = schedule.StaticBatching(
    batch=_SAX_BATCH,
    buckets=published.buckets,
    wait=_SAX_WAIT,
    longest=_SAX_LONGEST if rule.always_longest else 0,
  )
  offline = how.offline(requests, seconds)
  if not server:
    return Prediction(offline, None)

  def latencies(arrivals: np.ndarray) -> np.ndarray:
    return how.server(requests, seconds, arrivals)

  return Prediction(offline, _server(requests, offline, latencies))


def _between(known: Mapping[int, rules.Times], bucket: int) -> rules.Times:
  """Returns the times of a bucket, interpolated if it is unknown."""
  if bucket in known:
    return known[bucket]
  below = max(b for b in known if b < bucket)
  above = min(b for b in known if b > bucket)
  share = (bucket - below) / (above - below)
  a, b = known[below], known[above]

  def mixed(x: float, y: float) -> float:
    return x + share * (y - x)

  rows = a.rows[-1]
  prefill = mixed(a.prefill(rows, below), b.prefill(b.rows[-1], above))
  return dataclasses.replace(
    a,
    prefills={(rows, bucket): prefill},
    call=mixed(a.call, b.call),
    step=mixed(a.step, b.step),
  )
