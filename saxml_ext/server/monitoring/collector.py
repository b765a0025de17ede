"""Exports the metrics of a model server's models to Prometheus.

All values are read from the schedulers' own counters at each scrape, so nothing
is counted twice. The counters of a model restart from 0 when it is loaded
again, as Prometheus expects.

Three metrics are also exported under vLLM's names. The endpoint picker of
Kubernetes' Gateway API Inference Extension reads these by default (its model
server protocol, docs/proposals/003). This server reserves the key-value cache
per slot, so the utilization of the cache is that of the slots.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import jax
from prometheus_client import core
from prometheus_client import registry
from prometheus_client import utils

from saxml_ext.server.lifecycle import entry as entry_lib
from saxml_ext.server.lifecycle import lifecycle
from saxml_ext.server.loading import servable as servable_lib
from saxml_ext.server.scheduling import stats as stats_lib

_Entries: TypeAlias = Mapping[str, entry_lib.Entry[servable_lib.Servable]]

_Values: TypeAlias = Iterable[tuple[tuple[str, ...], float]]
_METHOD = ('model', 'method')

# Name in `stats.Totals`, name of the metric, and its help text.
_HISTOGRAMS = (
  (
    'latency',
    'sax_request_seconds',
    'Seconds from the arrival of a call to its answer, for answered calls.',
  ),
  ('queue', 'sax_queue_seconds', 'Seconds that a request waited for a slot.'),
  (
    'first_token',
    'sax_time_to_first_token_seconds',
    'Seconds from the arrival of a streamed request to the first part of its'
    ' answer.',
  ),
  (
    'per_token',
    'sax_time_per_output_token_seconds',
    'Seconds in a slot, including the prefill, per token of the answer.',
  ),
  (
    'batch_size',
    'sax_batch_size',
    'Requests in slots at the admission of a request.',
  ),
)
_COUNTERS = (
  (
    'expired',
    'sax_requests_expired',
    'Requests whose deadline passed before they left the queue.',
  ),
  ('prompt_tokens', 'sax_prompt_tokens', 'Tokens of answered prompts.'),
  (
    'output_tokens',
    'sax_output_tokens',
    'Tokens of answers, counting only the best answer of each request.',
  ),
)
# Help text, our name, vLLM's name or '', and the value.
_LOADS: tuple[tuple[str, str, str, Callable[[stats_lib.Load], float]], ...] = (
  (
    'Requests that can be decoded together.',
    'sax_slots',
    '',
    lambda load: load.slots,
  ),
  (
    'Requests that wait for a slot.',
    'sax_requests_waiting',
    'vllm:num_requests_waiting',
    lambda load: load.queued,
  ),
  (
    'Requests in slots.',
    'sax_requests_running',
    'vllm:num_requests_running',
    lambda load: load.running,
  ),
  (
    'Fraction of the slots, and so of the cache, that is in use.',
    'sax_slot_utilization',
    'vllm:kv_cache_usage_perc',
    lambda load: load.running / max(load.slots, 1),
  ),
)


class ModelsCollector(registry.Collector):
  """Reads the models of one server at each scrape."""

  def __init__(self, models: lifecycle.Models[servable_lib.Servable]):
    """Stores the models, which are read at each scrape."""
    self._models = models

  def describe(self) -> Iterable[core.Metric]:
    """Returns nothing, so that the registration does not read the models."""
    return ()

  def collect(self) -> Iterator[core.Metric]:
    """Yields all metrics for prometheus_client."""
    entries = self._models.entries()
    yield from _states(entries, self._models.load_seconds)
    served = {k: e.model for k, e in entries.items() if e.model is not None}
    yield from _loads({k: m.scheduler.load() for k, m in served.items()})
    yield _gauge(
      'sax_programs',
      'Compiled programs. A request waits for the pending ones that it needs.',
      ('model', 'state'),
      [
        ((key, state), count)
        for key, model in served.items()
        for ready, total in [model.programs()]
        for state, count in (('ready', ready), ('pending', total - ready))
      ],
    )
    yield from _totals(
      {
        (key, method): stats.totals()
        for key, model in served.items()
        for method, stats in model.method_stats.items()
      }
    )
    yield from _memory()


def _gauge(
  name: str, text: str, labels: Sequence[str], values: _Values
) -> core.Metric:
  return _filled(core.GaugeMetricFamily(name, text, labels=labels), values)


def _counter(
  name: str, text: str, labels: Sequence[str], values: _Values
) -> core.Metric:
  return _filled(core.CounterMetricFamily(name, text, labels=labels), values)


def _filled(family: Any, values: _Values) -> core.Metric:
  for labels, value in values:
    family.add_metric(labels, value)
  return family


def _states(
  entries: _Entries, load_seconds: Mapping[str, float]
) -> Iterator[core.Metric]:
  yield _gauge(
    'sax_model_state',
    '1 if a model is in this state, otherwise 0.',
    ('model', 'state'),
    [
      ((key, state.name), float(entry.state is state))
      for key, entry in entries.items()
      for state in entry_lib.State
    ],
  )
  yield _gauge(
    'sax_model_load_seconds',
    'Seconds that the last load of a model took.',
    ('model',),
    [((k,), load_seconds[k]) for k in entries if k in load_seconds],
  )


def _loads(loads: Mapping[str, stats_lib.Load]) -> Iterator[core.Metric]:
  for text, ours, theirs, value in _LOADS:
    values = [((key,), value(load)) for key, load in loads.items()]
    yield _gauge(ours, text, ('model',), values)
    if theirs:
      yield _gauge(theirs, text, ('model_name',), values)


def _totals(
  totals: Mapping[tuple[str, str], stats_lib.Totals],
) -> Iterator[core.Metric]:
  yield _counter(
    'sax_requests',
    'Finished calls, by status: RESOURCE_EXHAUSTED if refused, CANCELLED if'
    ' the client cancelled.',
    (*_METHOD, 'code'),
    [
      ((*key, code), count)
      for key, total in totals.items()
      for code, count in total.codes.items()
    ],
  )
  for attribute, name, text in _COUNTERS:
    values = [(key, getattr(total, attribute)) for key, total in totals.items()]
    yield _counter(name, text, _METHOD, values)
  for attribute, name, text in _HISTOGRAMS:
    family = core.HistogramMetricFamily(name, text, labels=_METHOD)
    for key, total in totals.items():
      counts = total.histograms[attribute]
      family.add_metric(key, _buckets(counts), counts.total)
    yield family


def _buckets(counts: stats_lib.Counts) -> list[tuple[str, float]]:
  names = [utils.floatToGoString(bound) for bound in counts.bounds]
  return list(zip([*names, '+Inf'], counts.counts, strict=True))


def _memory() -> Iterator[core.Metric]:
  """Yields the memory of devices that report it; for CPUs, see process_*."""
  kinds = {
    'bytes_in_use': 'in_use',
    'peak_bytes_in_use': 'peak',
    'bytes_limit': 'limit',
  }
  yield _gauge(
    'sax_device_memory_bytes',
    'Memory of a device: in_use, peak and limit.',
    ('device', 'kind'),
    [
      ((str(device.id), kinds[name]), value)
      for device in jax.local_devices()
      for name, value in (device.memory_stats() or {}).items()
      if name in kinds
    ],
  )
