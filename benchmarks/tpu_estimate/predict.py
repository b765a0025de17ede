"""Predicts samples per second of this server, and of Sax as submitted.

All results are estimates. A rule (`rules.py`) estimates the times of programs,
and serving is simulated (`schedule.py`).
"""

import collections
from collections.abc import Mapping
import dataclasses

import numpy as np

from benchmarks.tpu_estimate import benchmarks
from benchmarks.tpu_estimate import lengths as lengths_lib
from benchmarks.tpu_estimate import rules
from benchmarks.tpu_estimate import schedule
from benchmarks.tpu_estimate.compiled import costs

OFFLINE = 'Offline'


@dataclasses.dataclass(frozen=True)
class Prediction:
  """The predicted samples per second by one rule.

  Attributes:
    rates: The samples/s by scenario, starting with Offline.
    outcome: The outcome of the simulated Offline run, or None for static
      batching.
  """

  rates: Mapping[str, float]
  outcome: schedule.Outcome | None = None

  @property
  def offline(self) -> float:
    return self.rates[OFFLINE]


@dataclasses.dataclass(frozen=True)
class Published:
  """A published MLPerf result on four v5e chips (gptj-99, closed).

  Attributes:
    name: The name of the round.
    source: The path of its logs.
    buckets: The buckets of the served model.
    rates: The measured samples/s by scenario.
  """

  name: str
  source: str
  buckets: tuple[int, ...]
  rates: Mapping[str, float]


# The buckets are those of GPTJ4BS32Int8Opt10Early in v3.1's code, and of
# ...Wait40MB6Offline in the branch mlperf4.0.
PUBLISHED = (
  Published(
    'v3.1',
    'mlcommons/inference_results_v3.1 closed/Google/results/TPU-v5e-4_SAX',
    (512, 1024, 1919),
    {OFFLINE: 9.81226, benchmarks.SERVER: 7.13},
  ),
  Published(
    'v4.0',
    'mlcommons/inference_results_v4.0 closed/Google/results/tpu_v5e_x4',
    (512, 1024, 1536, 1919),
    {OFFLINE: 10.1502, benchmarks.SERVER: 7.24897},
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
  programs: costs.Set, buckets: tuple[int, ...] = (), stream_interval: int = 0
) -> schedule.Policy:
  """Returns the batching policy for a set's programs.

  Args:
    programs: The set. The policy uses all of its rows.
    buckets: The lengths that prompts are padded to; empty for the set's own
      lengths. Times of other lengths are interpolated.
    stream_interval: The decode steps between two messages of a stream.
  """
  return schedule.Policy(
    slots=programs.slots,
    parts=programs.parts,
    buckets=buckets or tuple(sorted({n for _, n in programs.prefills})),
    rows=tuple(sorted({rows for rows, _ in programs.prefills})),
    stream_interval=stream_interval,
  )


def decoded(
  programs: costs.Set, requests: lengths_lib.Lengths, rule: rules.Rule
) -> lengths_lib.Lengths:
  """Returns requests with their decode steps; only beams need additional ones.

  Args:
    programs: The set.
    requests: The requests.
    rule: The rule for the steps of beam search.
  """
  return requests.decoded(rule.steps if programs.beams > 1 else 1.0)


def predict(
  programs: costs.Set,
  requests: lengths_lib.Lengths,
  rule: rules.Rule,
  server: bool = True,
  buckets: tuple[int, ...] = (),
  stream_interval: int = 1,
) -> Prediction:
  """Returns the prediction for this server with a set.

  Args:
    programs: The set.
    requests: The requests.
    rule: The rule for the times.
    server: True to estimate the scenarios with arrivals at a rate too.
    buckets: The lengths that prompts are padded to, as in `policy`.
    stream_interval: The decode steps between two messages of a stream, in
      scenarios with bounds on tokens.
  """
  requests = decoded(programs, requests, rule)
  seconds = rules.times(programs, rule, requests)
  outcome = schedule.run(requests, seconds, policy(programs, buckets))
  rates = {OFFLINE: outcome.samples_per_second}
  for name, bounds in (
    benchmarks.find(programs).bounds.items() if server else ()
  ):
    interval = stream_interval if bounds.on_tokens else 0
    batching = policy(programs, buckets, interval)

    def valid(rate: float, batching=batching, bounds=bounds) -> bool:
      arrivals = schedule.poisson(len(requests), rate)
      return bounds.valid(schedule.run(requests, seconds, batching, arrivals))

    rates[name] = schedule.highest_rate(valid, rates[OFFLINE])
  return Prediction(rates, outcome)


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
  requests = decoded(programs, requests, rule)
  topology, slots = rules.topology_of(programs), rules.live(programs, requests)
  batching = policy(programs)
  counts = collections.Counter(
    lengths_lib.bucket(n, batching.buckets) for n in requests.prompts
  )
  cost = costs.Cost()
  for (rows, length), program in programs.prefills.items():
    if rows == batching.rows[-1]:
      cost += program.once.times(counts[length])
  decode = programs.programs[f'decode {programs.slots}']
  assert decode.step is not None  # An outcome has steps.
  prefill, once, step = (
    rules.parts(part_cost, topology, rule, slots)
    for part_cost in (cost, decode.once, decode.step)
  )
  total = len(requests) / central.offline
  scale = outcome.prefill_share / max(sum(prefill.values()), 1e-12)
  result = {
    part: scale * prefill[part]
    + (outcome.calls * once[part] + outcome.steps * step[part]) / total
    for part in rules.PARTS
  }
  return {**result, 'host': outcome.calls * rule.host / total}


def predict_sax(
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
  batching = schedule.StaticBatching(
    batch=_SAX_BATCH,
    buckets=published.buckets,
    wait=_SAX_WAIT,
    longest=_SAX_LONGEST if rule.always_longest else 0,
  )
  offline = batching.offline(requests, seconds)
  rates = {OFFLINE: offline}
  for name, bounds in benchmarks.GPTJ.bounds.items() if server else ():

    def valid(rate: float, bounds=bounds) -> bool:
      arrivals = schedule.poisson(len(requests), rate)
      return bounds.keeps(batching.server(requests, seconds, arrivals))

    rates[name] = schedule.highest_rate(valid, offline)
  return Prediction(rates)


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
