"""Renders the admin server's status pages as HTML.

/                        the cell: its models and its model servers
/model/sax/<cell>/<name> one model and the servers that hold it
/server/<host:port>      one model server and the models that it holds
"""

from collections.abc import Callable, Iterator, Sequence
import pathlib
import statistics
import time
from typing import Any

from saxml_ext.admin import controller as controller_lib
from saxml_ext.admin.leadership import cell_state
from saxml_ext.admin.modelet import held as held_lib
from saxml_ext.admin.modelet import modelets
from saxml_ext.admin.status import history as history_lib
from saxml_ext.admin.status import replica_table
from saxml_ext.common import errors
from saxml_ext.common.pages import page_kit
from saxml_ext.common.pages import svg_lines
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import common_pb2
from saxml_ext.protobuf import modelet_pb2

TEMPLATES = pathlib.Path(__file__).parent / 'templates'

_DORMANT = modelet_pb2.GetStatusResponse.ServerStatus.DORMANT
_GIB = 2**30
# Nobody can distinguish more lines, so the other models are added up.
_MOST_LINES = 7

_Value = Callable[[history_lib.Figures], float | None]


def message(title: str, heading: str, text: str, live: bool) -> str:
  """Returns a page with one sentence."""
  return page_kit.render(
    TEMPLATES / 'message.html',
    title=title,
    heading=heading,
    text=text,
    live=live,
    changes=False,
  )


def standby(cell: str, address: str, leader: str) -> str:
  """Returns the page of an admin server that does not lead."""
  text = (
    f'The admin server at {address} is on standby. The leader is'
    f' {leader or "unknown right now"}.'
  )
  return message(cell, f'{cell} Standby', text, live=True)


class StatusPage:
  """Renders the state in the controller of a cell."""

  def __init__(
    self,
    cell: str,
    controller: controller_lib.Controller,
    history: history_lib.History,
    changes: bool = False,
  ):
    """Renders pages for one request.

    Args:
      cell: The cell's id, "/sax/<cell>".
      controller: The cell's state.
      history: The cell's last minutes.
      changes: True to offer to publish and unpublish.
    """
    self._cell = cell
    self._controller = controller
    self._history = history
    self._changes = changes
    self._members = controller.members

  def render(self, path: str) -> str:
    """Returns the page of a model or a server, or else of the cell.

    Raises:
      NotFound: The model or server in the path does not exist.
    """
    if path.startswith('/model/'):
      return self._model(path.removeprefix('/model'))
    if path.startswith('/server/'):
      return self._server(path.removeprefix('/server/'))
    entries = self._controller.entries()
    servers = self._members.all(lost_too=True)
    lost = sum(s.lost for s in servers)
    summary = f'{_count(len(entries), "model")} published; '
    summary += _count(len(servers) - lost, 'model server')
    summary += f', and {lost} lost.' if lost else '.'
    return self._page(
      'cell',
      servers,
      summary=summary,
      models=[self._row(entry) for entry in entries],
    )

  def _page(
    self,
    kind: str,
    servers: Sequence[modelets.Modelet],
    model: str | None = None,
    server: str | None = None,
    **data: Any,
  ) -> str:
    return page_kit.render(
      TEMPLATES / f'{kind}.html',
      title=model or server or self._cell,
      heading=f'{self._cell} {kind.capitalize()} Status',
      live=True,
      changes=self._changes,
      tiles=_tiles(self._history.latest(model, server)),
      plots=_plots(list(self._history.samples), model, server),
      servers=[_server_row(modelet) for modelet in servers],
      **data,
    )

  def _row(self, entry: cell_state.Published) -> dict[str, Any]:
    """Returns the row of a model in the table of models."""
    model_id = entry.model.model_id
    servers = self._members.holders().get(model_id, [])
    load = self._history.latest(model_id)
    reasons = replica_table.describe(entry, servers, self._members)
    return {
      'model': entry.model,
      'state': _state(entry, servers),
      'servers': [(s, _status(s.held[model_id])) for s in servers],
      'load': load if load.slots else None,
      'answers': _number(load.answers) if load.slots else '',
      'reasons': [
        f'{r.address}: {r.reason}' if r.address else r.reason
        for r in reasons
        if r.reason
      ],
    }

  def _model(self, model_id: str) -> str:
    entry = self._controller.get(model_id)
    model, holders = entry.model, self._controller.holders(model_id)
    methods = set().union(*(s.held[model_id].methods for s in holders))
    settings = [
      ('Methods', ', '.join(sorted(methods))),
      ('Model path', model.model_path),
      ('Checkpoint', model.checkpoint_path),
      *((f'Override {k}', v) for k, v in sorted(model.overrides.items())),
      *((f'ACL of {k}', v) for k, v in sorted(model.acls.items.items())),
    ]
    return self._page(
      'model',
      holders,
      model_id,
      models=[self._row(entry)],
      settings=[(name, value) for name, value in settings if value],
    )

  def _server(self, address: str) -> str:
    servers = self._members.all(lost_too=True)
    matches = [s for s in servers if s.address == address]
    if not matches:
      raise errors.NotFound(f'model server {address} not found')
    [server] = matches
    return self._page(
      'server',
      matches,
      server=address,
      hosts=[
        (str(i), name, 'follower' if i else 'leader')
        for i, name in enumerate(server.hosts)
      ],
      methods=[
        (
          info.model_key,
          stats.method,
          f'{stats.successes_per_second:.2f}',
          f'{stats.errors_per_second:.2f}',
          _latency(stats, 'p50'),
          _latency(stats, 'p99'),
        )
        for info in server.status.models
        for stats in info.method_stats
      ],
      held=list(server.held),
      paths=[(path,) for path in sorted(server.paths)],
    )


def _server_row(server: modelets.Modelet) -> dict[str, Any]:
  """Returns the row of a server in the table of model servers."""
  spec = server.join.model_server
  dormant = server.status.server_status.state == _DORMANT
  return {
    'server': server,
    'state': 'Lost' if server.lost else 'Dormant' if dormant else 'Active',
    'held': [(model, _status(h)) for model, h in sorted(server.held.items())],
    'chip': _enum(admin_pb2.ModelServer.ChipType, spec.chip_type),
    'topology': _enum(admin_pb2.ModelServer.ChipTopology, spec.chip_topology),
    'memory': f'{spec.memory_bytes / _GIB:.1f}'
    if spec.memory_bytes
    else 'unknown',
    'lag': time.monotonic() - server.last_seen,
  }


def _status(held: held_lib.Held) -> str:
  return common_pb2.ModelStatus.Name(held.status)


def _enum(kind, value: int) -> str:
  # A newer server may announce a number that has no name here.
  return kind.Name(value) if value in kind.values() else str(value)


def _latency(
  stats: modelet_pb2.GetStatusResponse.MethodStats, which: str
) -> str:
  name = f'{which}_latency_on_success_per_second'
  return f'{getattr(stats, name):.3f}' if stats.HasField(name) else ''


def _state(
  entry: cell_state.Published, servers: Sequence[modelets.Modelet]
) -> str:
  """Returns the state of a model as a whole, in one or two words."""
  replicas = entry.model.requested_num_replicas
  status = [s.held[entry.model.model_id].status for s in servers]
  if status.count(held_lib.LOADED) >= replicas:
    return 'Ready' if replicas else 'No replicas requested'
  if held_lib.LOADED in status:
    return 'Incomplete'
  if held_lib.LOADING in status:
    return 'Loading'
  return 'Failed' if status or entry.failures.items() else 'Not assigned'


def _tiles(now: history_lib.Figures) -> list[tuple[str, str]]:
  """Returns the newest figures and their names."""
  return [
    (_number(now.answers), 'answers/s'),
    (_number(now.tokens), 'output tokens/s'),
    (_seconds(now.p50), 'latency, p50'),
    (_seconds(now.p99), 'latency, p99'),
    (str(now.queued), 'requests in the queue'),
    (f'{now.running} of {now.slots}', 'slots in use'),
  ]


def _plots(
  samples: Sequence[history_lib.Sample], model: str | None, server: str | None
) -> Iterator[svg_lines.Figure]:
  """Yields plots of a cell by model, or of the given model or server."""
  if len(samples) < 2:
    return
  ages = [samples[-1].when - sample.when for sample in samples]

  def line(value: _Value, ids: Sequence[str | None]) -> svg_lines.Values:
    return [
      value(
        history_lib.total(
          f for one in ids for f in history_lib.chosen(sample, one, server)
        )
      )
      for sample in samples
    ]

  for title, unit, value in (
    ('Throughput', 'answers/s', lambda f: f.answers),
    ('Generated', 'tokens/s', lambda f: f.tokens),
  ):
    lines = [
      (name, line(value, ids)) for name, ids in _lines(samples, model, server)
    ]
    yield svg_lines.over_time(title, unit, ages, lines)
  values: tuple[tuple[str, _Value], ...]
  for title, unit, values in (
    ('Latency', 's', (('p50', lambda f: f.p50), ('p99', lambda f: f.p99))),
    (
      'Requests',
      '',
      (
        ('in slots', lambda f: f.running),
        ('in the queue', lambda f: f.queued),
        ('refused or failed per second', lambda f: f.errors),
      ),
    ),
  ):
    lines = [(name, line(value, [model])) for name, value in values]
    yield svg_lines.over_time(title, unit, ages, lines)


def _lines(
  samples: Sequence[history_lib.Sample], model: str | None, server: str | None
) -> list[tuple[str, list[str]]]:
  """Returns the name and the ids of each line: the busiest, and the others."""
  if model is not None:
    return [(model, [model])]

  def mean_answers(one: str) -> float:
    return statistics.fmean(
      history_lib.total(history_lib.chosen(sample, one, server)).answers
      for sample in samples
    )

  ids = sorted({m for sample in samples for _, m in sample.figures})
  if len(ids) > _MOST_LINES:
    ids.sort(key=mean_answers, reverse=True)
  # The lines are sorted by name, so that colors do not change.
  lines = [(i, [i]) for i in sorted(ids[:_MOST_LINES])]
  if rest := ids[_MOST_LINES:]:
    lines.append(('others', rest))
  return lines


def _count(number: int, what: str) -> str:
  return f'{number} {what}' if number == 1 else f'{number} {what}s'


def _number(value: float) -> str:
  return f'{value:.1f}' if value < 100 else f'{value:.0f}'


def _seconds(value: float | None) -> str:
  if value is None:
    return '–'
  return f'{value * 1e3:.0f} ms' if value < 1 else f'{value:.2f} s'
