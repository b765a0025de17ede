"""The admin server's status pages, as HTML.

/                        the cell: its models and its model servers
/model/sax/<cell>/<name> one model and the servers that hold it
/server/<host:port>      one model server
"""

from collections.abc import Iterable, Sequence
import html
import time

from saxml_ext.admin import controller as controller_lib
from saxml_ext.admin import held as held_lib
from saxml_ext.admin import modelets
from saxml_ext.admin import replicas
from saxml_ext.admin import state
from saxml_ext.common import errors
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import common_pb2
from saxml_ext.protobuf import modelet_pb2

_STYLE = (
    'body{font-family:sans-serif;margin:2em}'
    'table{border-collapse:collapse;margin-bottom:2em}'
    'th,td{border:1px solid #888;padding:.3em .6em;text-align:left;'
    'vertical-align:top}th{background:#eee}'
)
_DORMANT = modelet_pb2.GetStatusResponse.ServerStatus.DORMANT


def standby(cell: str, address: str, leader: str) -> str:
  """The page of an admin server that does not lead."""
  name = html.escape(cell)
  where = html.escape(leader or 'not known right now')
  return (
      f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
      f'<title>{name}</title><style>{_STYLE}</style></head><body>'
      f'<h1>{name} Standby</h1><p>The admin server at {html.escape(address)} '
      f'stands by. The leader is {where}.</p></body></html>\n'
  )


class StatusPage:
  """Renders what the controller of a cell knows."""

  def __init__(self, cell: str, controller: controller_lib.Controller):
    """For the pages of one cell, "/sax/<cell>"."""
    self._cell = cell
    self._controller = controller

  def render(self, path: str) -> str:
    """The page at a path; any path it does not know shows the cell.

    Raises:
      NotFound: the model or server that the path names is not there.
    """
    if path.startswith('/model/'):
      entry = self._controller.get(path.removeprefix('/model'))
      holders = self._controller.holders(entry.model.model_id)
      return self._page(
          'Model',
          _models([entry], {entry.model.model_id: holders}) + _servers(holders),
      )
    servers = self._controller.servers(lost_too=True)
    if path.startswith('/server/'):
      address = path.removeprefix('/server/')
      found = [s for s in servers if s.address == address]
      if not found:
        raise errors.NotFound(f'model server {address} not found')
      return self._page('Server', _servers(found))
    return self._page(
        'Cell',
        _models(self._controller.entries(), self._controller.all_holders())
        + _servers(servers),
    )

  def _page(self, kind: str, body: str) -> str:
    cell = html.escape(self._cell)
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        f'<title>{cell}</title><style>{_STYLE}</style></head><body>'
        f'<h1>{cell} {kind} Status</h1>{body}</body></html>\n'
    )


def _models(
    entries: Iterable[state.Published],
    holders: dict[str, list[modelets.Modelet]],
) -> str:
  rows = []
  for entry in entries:
    model = entry.model
    servers = holders.get(model.model_id, [])
    held = [s.held[model.model_id] for s in servers]
    rows.append(
        [
            _link('/model' + model.model_id, model.model_id),
            str(model.requested_num_replicas),
            str(len(servers)),
            html.escape(model.model_path),
            html.escape(model.checkpoint_path),
            _count(held),
            '<br>'.join(
                html.escape(f'{r.address}: {r.reason}')
                for r in replicas.describe(entry, servers)
                if r.address and r.reason
            ),
        ]
    )
  return _table(
      'Models',
      ('Name', 'Max', 'Active', 'Path', 'Checkpoint', 'Status', 'Last error'),
      rows,
  )


def _count(held: Sequence[held_lib.Held]) -> str:
  """ "2 LOADED, 1 FAILED"."""
  names = [common_pb2.ModelStatus.Name(h.status) for h in held]
  return (
      ', '.join(
          f'{names.count(name)} {name}'
          for name in ('LOADED', 'LOADING', 'FAILED')
          if name in names
      )
      or 'not assigned'
  )


def _servers(servers: Iterable[modelets.Modelet]) -> str:
  now = time.monotonic()
  rows = []
  for server in servers:
    spec = server.join.model_server
    models = ', '.join(
        f'{k}: {common_pb2.ModelStatus.Name(h.status)}'
        for k, h in sorted(server.held.items())
    )
    dormant = server.status.server_status.state == _DORMANT
    rows.append(
        [
            _link('/server/' + server.address, server.address),
            _enum(admin_pb2.ModelServer.ChipType, spec.chip_type),
            _enum(admin_pb2.ModelServer.ChipTopology, spec.chip_topology),
            f'{now - server.last_seen:.3f}',
            html.escape(models) or 'Idle',
            'Lost' if server.lost else 'Dormant' if dormant else 'Active',
        ]
    )
  return _table(
      'Model servers',
      ('Addr', 'Chip', 'Topo', 'Lag (s)', 'ModelStatus', 'ServerStatus'),
      rows,
  )


def _enum(kind, value: int) -> str:
  # A newer server may announce a number that has no name here.
  return kind.Name(value) if value in kind.values() else str(value)


def _link(path: str, text: str) -> str:
  return f'<a href="{html.escape(path)}">{html.escape(text)}</a>'


def _table(
    title: str, header: Sequence[str], rows: Iterable[Sequence[str]]
) -> str:
  """A table; cells of `rows` are HTML already."""
  head = ''.join(f'<th>{html.escape(h)}</th>' for h in header)
  body = ''.join(
      '<tr>' + ''.join(f'<td>{c}</td>' for c in row) + '</tr>' for row in rows
  )
  return f'<h2>{title}</h2><table><tr>{head}</tr>{body}</table>'
