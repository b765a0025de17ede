"""What the admin server tells Prometheus of its cell."""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import core
from prometheus_client import registry

from saxml_ext.admin import controller as controller_lib
from saxml_ext.admin.leadership import election as election_lib
from saxml_ext.admin.modelet import modelets
from saxml_ext.protobuf import common_pb2

_STATUSES = ('LOADING', 'LOADED', 'FAILED')


class CellCollector(registry.Collector):
  """Reads the controller's state at each scrape; a standby has little."""

  def __init__(
    self,
    controller: Callable[[], controller_lib.Controller | None],
    election: election_lib.Election,
  ):
    """`controller` returns that of the cell, None while others lead."""
    self._controller = controller
    self._election = election

  def describe(self) -> Iterable[core.Metric]:
    """Nothing: what there is depends on who leads."""
    return ()

  def collect(self) -> Iterator[core.Metric]:
    """All metrics, as prometheus_client wants them."""
    controller = self._controller()
    yield _gauge(
      'sax_admin_leads',
      'Whether this admin server leads its cell.',
      int(controller is not None and self._election.is_valid()),
    )
    yield _gauge(
      'sax_admin_epoch',
      'Number of the leadership; 0 for a standby.',
      self._election.epoch,
    )
    if controller is not None:
      yield from _cell(controller)


def _cell(controller: controller_lib.Controller) -> Iterator[core.Metric]:
  entries = controller.entries()
  servers = controller.members.all(lost_too=True)
  lost = [s for s in servers if s.lost]
  living = [s for s in servers if not s.lost]
  status = [
    common_pb2.ModelStatus.Name(h.status)
    for s in servers
    for h in s.held.values()
  ]
  yield _gauge(
    'sax_admin_published_models', 'Models that are published.', len(entries)
  )
  yield _gauge(
    'sax_admin_requested_replicas',
    'Replicas that published models ask for.',
    sum(e.model.requested_num_replicas for e in entries),
  )
  yield _gauges(
    'sax_admin_replicas',
    'Replicas on living model servers, by status.',
    'status',
    [(name, status.count(name)) for name in _STATUSES],
  )
  yield _gauge(
    'sax_admin_load_failures',
    'Failures in a row of loads that did not succeed since.',
    sum(f.count for e in entries for _, f in e.failures.items()),
  )
  yield _gauges(
    'sax_admin_model_servers',
    'Joined model servers.',
    'state',
    [('living', len(living)), ('lost', len(lost))],
  )
  yield _gauges(
    'sax_admin_hosts',
    'Hosts of joined model servers; a group has several.',
    'state',
    [('living', _hosts(living)), ('lost', _hosts(lost))],
  )
  yield _gauge(
    'sax_admin_watchers',
    'Calls that wait for a change of a model.',
    sum(e.changed.num_waiters for e in entries),
  )


def _hosts(servers: Iterable[modelets.Modelet]) -> int:
  return sum(len(s.hosts) or 1 for s in servers)


def _gauge(name: str, text: str, value: float) -> core.Metric:
  return core.GaugeMetricFamily(name, text, value=value)


def _gauges(
  name: str, text: str, label: str, values: Iterable[tuple[str, float]]
) -> core.Metric:
  family = core.GaugeMetricFamily(name, text, labels=(label,))
  for key, value in values:
    family.add_metric((key,), value)
  return family
