"""What the admin server tells Prometheus, in its text format."""

from collections.abc import Iterable

from saxml_ext.admin import controller as controller_lib
from saxml_ext.admin.leadership import election as election_lib
from saxml_ext.admin.modelet import modelets
from saxml_ext.admin.status import http_server
from saxml_ext.protobuf import common_pb2

_KIND = 'text/plain; version=0.0.4'
_STATUSES = ('LOADING', 'LOADED', 'FAILED')


def page(
  controller: controller_lib.Controller | None,
  election: election_lib.Election,
) -> http_server.Page:
  """The page /metrics; a standby tells that it is one, and no more."""
  lines = _gauge(
    'sax_admin_leads',
    'Whether this admin server leads its cell.',
    [('', int(controller is not None and election.is_valid()))],
  )
  lines += _gauge(
    'sax_admin_epoch',
    'Number of the leadership; 0 for a standby.',
    [('', election.epoch)],
  )
  if controller is not None:
    lines += _cell(controller)
  return http_server.Page('\n'.join(lines) + '\n', _KIND)


def _cell(controller: controller_lib.Controller) -> list[str]:
  entries = controller.entries()
  servers = controller.members.all(lost_too=True)
  lost = sum(s.lost for s in servers)
  status = [
    common_pb2.ModelStatus.Name(h.status)
    for s in servers
    for h in s.held.values()
  ]
  failures = sum(f.count for e in entries for _, f in e.failures.items())
  return [
    *_gauge(
      'sax_admin_published_models',
      'Models that are published.',
      [('', len(entries))],
    ),
    *_gauge(
      'sax_admin_requested_replicas',
      'Replicas that published models ask for.',
      [('', sum(e.model.requested_num_replicas for e in entries))],
    ),
    *_gauge(
      'sax_admin_replicas',
      'Replicas on living model servers, by status.',
      [(f'status="{s}"', status.count(s)) for s in _STATUSES],
    ),
    *_gauge(
      'sax_admin_load_failures',
      'Failures in a row of loads that did not succeed since.',
      [('', failures)],
    ),
    *_gauge(
      'sax_admin_model_servers',
      'Joined model servers.',
      [
        ('state="living"', len(servers) - lost),
        ('state="lost"', lost),
      ],
    ),
    *_gauge(
      'sax_admin_hosts',
      'Hosts of joined model servers; a group has several.',
      [
        ('state="living"', _hosts(s for s in servers if not s.lost)),
        ('state="lost"', _hosts(s for s in servers if s.lost)),
      ],
    ),
    *_gauge(
      'sax_admin_watchers',
      'Calls that wait for a change of a model.',
      [('', sum(e.changed.num_waiters for e in entries))],
    ),
  ]


def _hosts(servers: Iterable[modelets.Modelet]) -> int:
  return sum(len(s.hosts) or 1 for s in servers)


def _gauge(
  name: str, description: str, values: Iterable[tuple[str, int]]
) -> list[str]:
  lines = [f'# HELP {name} {description}', f'# TYPE {name} gauge']
  for labels, value in values:
    lines.append(f'{name}{{{labels}}} {value}' if labels else f'{name} {value}')
  return lines
