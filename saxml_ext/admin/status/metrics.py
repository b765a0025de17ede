"""Exports the metrics of the cell to Prometheus."""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import core
from prometheus_client import registry

from saxml_ext.admin import controller as controller_lib
from saxml_ext.admin.leadership import election as election_lib
from saxml_ext.admin.modelet import modelets
from saxml_ext.protobuf import common_pb2

_STATUSES = ('LOADING', 'LOADED', 'FAILED')


class CellCollector(registry.Collector):
  """Reads the controller's state at each scrape. A standby has few metrics."""

  def __init__(
    self,
    controller: Callable[[], controller_lib.Controller | None],
    election: election_lib.Election,
  ):
    """Reads nothing before a scrape.

    Args:
      controller: A function that returns the cell's controller, or None while
        another server leads.
      election: The election of the admin server.
    """
    self._controller = controller
    self._election = election

  def describe(self) -> Iterable[core.Metric]:
    """Returns nothing, because the set of metrics depends on the leader."""
    return ()

  def collect(self) -> Iterator[core.Metric]:
    """Yields all metrics in the format of prometheus_client."""
    controller = self._controller()
    leads = controller is not None and self._election.is_valid()
    values: list[tuple[str, str, float]] = [
      ('leads', '1 if this admin server leads its cell, else 0.', int(leads)),
      ('epoch', 'Epoch if this server leads, else 0.', self._election.epoch),
    ]
    if controller is not None:
      values += _cell(controller)
      yield from _by_label(controller)
    for name, text, value in values:
      yield core.GaugeMetricFamily(f'sax_admin_{name}', text, value=value)


def _cell(
  controller: controller_lib.Controller,
) -> list[tuple[str, str, float]]:
  """Returns the name, the text and the value of the metrics without a label."""
  entries = controller.entries()
  return [
    ('published_models', 'Published models.', len(entries)),
    (
      'requested_replicas',
      'Requested replicas of all published models.',
      sum(e.model.requested_num_replicas for e in entries),
    ),
    (
      'load_failures',
      'Consecutive failed loads since the last success.',
      sum(f.count for e in entries for _, f in e.failures.items()),
    ),
    (
      'watchers',
      'Calls that wait for a change of a model.',
      sum(e.changed.num_waiters for e in entries),
    ),
  ]


def _by_label(controller: controller_lib.Controller) -> Iterator[core.Metric]:
  """Yields the metrics that have a label."""
  servers = controller.members.all(lost_too=True)
  states = {
    'living': [s for s in servers if not s.lost],
    'lost': [s for s in servers if s.lost],
  }
  status = [
    common_pb2.ModelStatus.Name(h.status)
    for s in servers
    for h in s.held.values()
  ]
  for name, text, label, values in (
    (
      'replicas',
      'Replicas on reachable model servers, by status.',
      'status',
      {name: status.count(name) for name in _STATUSES},
    ),
    (
      'model_servers',
      'Joined model servers.',
      'state',
      {state: len(members) for state, members in states.items()},
    ),
    (
      'hosts',
      'Hosts of joined model servers. A group has several hosts.',
      'state',
      {state: _hosts(members) for state, members in states.items()},
    ),
  ):
    family = core.GaugeMetricFamily(f'sax_admin_{name}', text, labels=(label,))
    for key, value in values.items():
      family.add_metric((key,), value)
    yield family


def _hosts(servers: Iterable[modelets.Modelet]) -> int:
  return sum(len(s.hosts) or 1 for s in servers)
