"""Tables of the status pages that tell of model servers, as HTML."""

from collections.abc import Sequence
import html
import time

from saxml_ext.admin.modelet import held as held_lib
from saxml_ext.admin.modelet import modelets
from saxml_ext.admin.status import markup
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import common_pb2
from saxml_ext.protobuf import modelet_pb2

_DORMANT = modelet_pb2.GetStatusResponse.ServerStatus.DORMANT
_GIB = 2**30


def model_state(held: held_lib.Held) -> str:
  """How a model fares on a server, as a coloured label."""
  return markup.state(common_pb2.ModelStatus.Name(held.status))


def size(server: modelets.Modelet) -> str:
  """What stands behind the address of a group: " (4 hosts)"; else ""."""
  return f' ({len(server.hosts)} hosts)' if server.hosts else ''


def overview(servers: Sequence[modelets.Modelet]) -> str:
  """Model servers and what they hold; the hosts of groups if there are any."""
  now = time.monotonic()
  return markup.table(
    'Model servers',
    (
      'Addr',
      'Hosts',
      'ServerStatus',
      'ModelStatus',
      'Chip',
      'Topo',
      'Memory (GiB)',
      'Tags',
      'Lag (s)',
    ),
    [_row(server, now) for server in servers],
    numbers=('Memory (GiB)', 'Lag (s)'),
    short=('Addr', 'ModelStatus', 'Chip', 'Topo'),
    optional=('Hosts',),
  )


def _row(server: modelets.Modelet, now: float) -> list[str]:
  spec = server.join.model_server
  return [
    markup.server_link(server.address),
    _names(server),
    _state(server),
    _models(server) or 'Idle',
    _enum(admin_pb2.ModelServer.ChipType, spec.chip_type),
    _enum(admin_pb2.ModelServer.ChipTopology, spec.chip_topology),
    f'{spec.memory_bytes / _GIB:.1f}' if spec.memory_bytes else 'not told',
    html.escape(', '.join(spec.tags)),
    f'{now - server.last_seen:.3f}',
  ]


def _names(server: modelets.Modelet) -> str:
  if not server.hosts:
    return ''
  return f'{len(server.hosts)}: {markup.names(server.hosts)}'


def _state(server: modelets.Modelet) -> str:
  if server.lost:
    why = [markup.path(server.left)] if server.left else []
    return markup.lines([markup.state('Lost'), *why])
  dormant = server.status.server_status.state == _DORMANT
  return markup.state('Dormant' if dormant else 'Active')


def _models(server: modelets.Modelet) -> str:
  return markup.lines(
    [
      f'{markup.model_link(k)}: {model_state(h)}'
      for k, h in sorted(server.held.items())
    ]
    + [
      f'{html.escape(k)}: {markup.state("unloads")}'
      for k in sorted(server.unloading)
    ]
  )


def hosts(server: modelets.Modelet) -> str:
  """The hosts of a group, in the order of their processes; else ""."""
  if not server.hosts:
    return ''
  return markup.table(
    'Hosts',
    ('Process', 'Host', 'Part'),
    [
      [str(i), html.escape(name), 'follower' if i else 'leader']
      for i, name in enumerate(server.hosts)
    ],
    short=('Process', 'Host'),
  )


def methods(server: modelets.Modelet) -> str:
  """What a server last told of its methods, as HTML."""
  rows = [
    [
      markup.model_link(info.model_key)
      if info.model_key in server.held
      else html.escape(info.model_key),
      html.escape(stats.method),
      f'{stats.successes_per_second:.2f}',
      f'{stats.errors_per_second:.2f}',
      _latency(stats, 'p50'),
      _latency(stats, 'p99'),
    ]
    for info in server.status.models
    for stats in info.method_stats
  ]
  return markup.table(
    'Methods',
    ('Model', 'Method', 'Answers/s', 'Errors/s', 'p50 (s)', 'p99 (s)'),
    rows,
    numbers=('Answers/s', 'Errors/s', 'p50 (s)', 'p99 (s)'),
    empty='No model is loaded.',
  )


def _latency(
  stats: modelet_pb2.GetStatusResponse.MethodStats, which: str
) -> str:
  name = f'{which}_latency_on_success_per_second'
  return f'{getattr(stats, name):.3f}' if stats.HasField(name) else ''


def _enum(kind, value: int) -> str:
  # A newer server may announce a number that has no name here.
  return kind.Name(value) if value in kind.values() else str(value)
