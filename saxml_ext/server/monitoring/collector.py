"""What a model server tells Prometheus of its models.

All figures are read from the schedulers' own counters when somebody scrapes;
nothing is counted twice. Those of a model begin anew when it is loaded again,
as Prometheus expects of counters.

Three come under vLLM's names as well, which the endpoint picker of Kubernetes'
Gateway API Inference Extension reads by default (its model server protocol,
docs/proposals/003). Cache for keys and values is set aside by slot here, so
its utilization is that of the slots.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

import jax
from prometheus_client import core
from prometheus_client import registry
from prometheus_client import utils

from saxml_ext.server.lifecycle import entry as entry_lib
from saxml_ext.server.lifecycle import lifecycle
from saxml_ext.server.loading import servable as servable_lib
from saxml_ext.server.scheduling import stats as stats_lib

_Entries: TypeAlias = Mapping[str, entry_lib.Entry[servable_lib.Servable]]

# Name of a histogram in `stats.Totals`, of the metric, and what it is.
_HISTOGRAMS = (
  (
    'latency',
    'sax_request_seconds',
    'Seconds from the arrival of a call to its answer, of those answered.',
  ),
  (
    'queue',
    'sax_queue_seconds',
    'Seconds that a request waited for a slot.',
  ),
  (
    'first_token',
    'sax_time_to_first_token_seconds',
    'Seconds from the arrival to the first news of the answer; of requests'
    ' that stream.',
  ),
  (
    'per_token',
    'sax_time_per_output_token_seconds',
    'Seconds in a slot, its prefill included, for each token of the answer.',
  ),
  (
    'batch_size',
    'sax_batch_size',
    'Requests that were in slots when one was admitted.',
  ),
)
# Help, vLLM's name, ours, and the value.
_LOADS: tuple[tuple[str, str, str, Callable[[stats_lib.Load], float]], ...] = (
  (
    'Requests that wait for a slot.',
    'vllm:num_requests_waiting',
    'sax_requests_waiting',
    lambda load: load.queued,
  ),
  (
    'Requests in slots.',
    'vllm:num_requests_running',
    'sax_requests_running',
    lambda load: load.running,
  ),
  (
    'Part of the slots, and so of the cache, that is in use, from 0 to 1.',
    'vllm:kv_cache_usage_perc',
    'sax_slot_utilization',
    lambda load: load.running / max(load.slots, 1),
  ),
)


class ModelsCollector(registry.Collector):
  """Reads the models of one server at each scrape."""

  def __init__(self, models: lifecycle.Models[servable_lib.Servable]):
    """Reads nothing yet."""
    self._models = models

  def describe(self) -> Iterable[core.Metric]:
    """Nothing: to register it must not need models."""
    return ()

  def collect(self) -> Iterator[core.Metric]:
    """All metrics, as prometheus_client wants them."""
    entries = self._models.entries()
    yield from _states(entries, self._models.load_seconds)
    served = {k: e.model for k, e in entries.items() if e.model is not None}
    yield from _loads({k: m.scheduler.load() for k, m in served.items()})
    yield from _totals(
      {
        (key, method): stats.totals()
        for key, model in served.items()
        for method, stats in model.method_stats.items()
      }
    )
    yield from _memory()


def _states(
  entries: _Entries, load_seconds: Mapping[str, float]
) -> Iterator[core.Metric]:
  states = core.GaugeMetricFamily(
    'sax_model_state',
    'Whether a model is in this state: 1 or 0.',
    labels=('model', 'state'),
  )
  seconds = core.GaugeMetricFamily(
    'sax_model_load_seconds',
    'Seconds that the last load of a model took.',
    labels=('model',),
  )
  for key, entry in entries.items():
    for state in entry_lib.State:
      states.add_metric((key, state.name), float(entry.state is state))
    if key in load_seconds:
      seconds.add_metric((key,), load_seconds[key])
  yield states
  yield seconds


def _loads(loads: Mapping[str, stats_lib.Load]) -> Iterator[core.Metric]:
  slots = core.GaugeMetricFamily(
    'sax_slots', 'Requests that can be decoded together.', labels=('model',)
  )
  for key, load in loads.items():
    slots.add_metric((key,), load.slots)
  yield slots
  for text, theirs, ours, value in _LOADS:
    for name, label in ((ours, 'model'), (theirs, 'model_name')):
      family = core.GaugeMetricFamily(name, text, labels=(label,))
      for key, load in loads.items():
        family.add_metric((key,), value(load))
      yield family


def _totals(
  totals: Mapping[tuple[str, str], stats_lib.Totals],
) -> Iterator[core.Metric]:
  labels = ('model', 'method')
  requests = core.CounterMetricFamily(
    'sax_requests',
    'Calls that ended, by the status they ended with: RESOURCE_EXHAUSTED for'
    ' those refused, CANCELLED for those given up.',
    labels=(*labels, 'code'),
  )
  expired = core.CounterMetricFamily(
    'sax_requests_expired',
    'Requests whose deadline passed in the queue, which no device saw.',
    labels=labels,
  )
  prompt = core.CounterMetricFamily(
    'sax_prompt_tokens', 'Tokens of prompts that were answered.', labels=labels
  )
  output = core.CounterMetricFamily(
    'sax_output_tokens',
    'Tokens of answers; of several to one request, those of the best.',
    labels=labels,
  )
  for key, total in totals.items():
    for code, count in total.codes.items():
      requests.add_metric((*key, code), count)
    expired.add_metric(key, total.expired)
    prompt.add_metric(key, total.prompt_tokens)
    output.add_metric(key, total.output_tokens)
  yield from (requests, expired, prompt, output)
  for name, metric, text in _HISTOGRAMS:
    family = core.HistogramMetricFamily(metric, text, labels=labels)
    for key, total in totals.items():
      found = total.histograms[name]
      family.add_metric(key, _buckets(found), found.total)
    yield family


def _buckets(found: stats_lib.Counts) -> list[tuple[str, float]]:
  names = [utils.floatToGoString(bound) for bound in found.bounds]
  return list(zip([*names, '+Inf'], found.counts, strict=True))


def _memory() -> Iterator[core.Metric]:
  """Memory of devices that tell: not of a CPU's, see process_* there."""
  family = core.GaugeMetricFamily(
    'sax_device_memory_bytes',
    'Memory of a device: in_use, peak and limit.',
    labels=('device', 'kind'),
  )
  for device in jax.local_devices():
    found = device.memory_stats() or {}
    for name, kind in (
      ('bytes_in_use', 'in_use'),
      ('peak_bytes_in_use', 'peak'),
      ('bytes_limit', 'limit'),
    ):
      if name in found:
        family.add_metric((str(device.id), kind), found[name])
  yield family
