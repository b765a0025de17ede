"""The admin server's status pages, as HTML.

/                        the cell: its models and its model servers
/model/sax/<cell>/<name> one model and the servers that hold it
/server/<host:port>      one model server and what it holds
"""

from collections.abc import Iterable, Sequence
import html
import urllib.parse

from saxml_ext.admin import controller as controller_lib
from saxml_ext.admin.leadership import cell_state
from saxml_ext.admin.modelet import held as held_lib
from saxml_ext.admin.modelet import modelets
from saxml_ext.admin.status import cell_plots
from saxml_ext.admin.status import history as history_lib
from saxml_ext.admin.status import markup
from saxml_ext.admin.status import replica_table
from saxml_ext.admin.status import server_tables
from saxml_ext.common import errors

# Columns that are there if servers tell.
_LOAD = ('Queue', 'Slots', 'Answers/s', 'p99 (s)')


def standby(cell: str, address: str, leader: str) -> str:
  """The page of an admin server that does not lead."""
  return markup.page(
    cell,
    f'{cell} Standby',
    markup.paragraph(
      f'The admin server at {address} stands by. The leader is '
      f'{leader or "not known right now"}.'
    ),
  )


class StatusPage:
  """Renders what the controller of a cell knows."""

  def __init__(
    self,
    cell: str,
    controller: controller_lib.Controller,
    history: history_lib.History,
    changes: bool = False,
  ):
    """Renders pages for one request.

    Args:
      cell: "/sax/<cell>".
      controller: its state.
      history: its last minutes.
      changes: offer to publish and unpublish.
    """
    self._cell = cell
    self._controller = controller
    self._history = history
    self._changes = changes
    self._members = controller.members

  def render(self, path: str) -> str:
    """Returns the page of a model or a server, or else of the cell.

    Raises:
      NotFound: the model or server that the path names is not there.
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
    summary += f', and {lost} lost' if lost else ''
    return self._page(
      'Cell',
      markup.paragraph(summary + '.')
      + cell_plots.tiles(self._history.latest())
      + cell_plots.figures(self._history)
      + self._models(entries)
      + server_tables.overview(servers),
    )

  def _page(self, kind: str, body_html: str, title: str = '') -> str:
    return markup.page(
      title or self._cell,
      f'{self._cell} {kind} Status',
      body_html,
      self._changes,
    )

  def _models(self, entries: Iterable[cell_state.Published]) -> str:
    holders = self._members.holders()
    rows = []
    for entry in entries:
      model = entry.model
      servers = holders.get(model.model_id, [])
      rows.append(
        [
          markup.model_link(model.model_id),
          markup.state(_state(entry, servers)),
          str(model.requested_num_replicas),
          str(len(servers)),
          markup.path(model.model_path),
          markup.path(model.checkpoint_path),
          markup.lines(
            f'{markup.server_link(s.address)}{server_tables.size(s)}:'
            f' {server_tables.model_state(s.held[model.model_id])}'
            for s in servers
          ),
          *cell_plots.load(self._history.latest(model.model_id)),
          markup.lines(self._reasons(entry, servers)),
          self._unpublish(model.model_id),
        ]
      )
    return markup.table(
      'Models',
      (
        'Name',
        'Status',
        'Max',
        'Active',
        'Path',
        'Checkpoint',
        'Servers',
        *_LOAD,
        'Remarks',
        'Change',
      ),
      rows,
      numbers=('Max', 'Active', *_LOAD),
      long=('Remarks',),
      optional=(*_LOAD, 'Remarks', 'Change'),
      short=('Name', 'Servers'),
      pinned=('Change',),
      empty='No model is published; see `saxutil publish`.',
    )

  def _unpublish(self, model_id: str) -> str:
    if not self._changes:
      return ''
    query = urllib.parse.urlencode({'model': model_id})
    return markup.link(f'/unpublish?{query}', 'Unpublish')

  def _reasons(
    self, entry: cell_state.Published, servers: Sequence[modelets.Modelet]
  ) -> list[str]:
    """What is wrong with a model, as HTML."""
    return [
      markup.path(f'{r.address}: {r.reason}' if r.address else r.reason)
      for r in replica_table.describe(entry, servers, self._members)
      if r.reason
    ]

  def _model(self, model_id: str) -> str:
    entry = self._controller.get(model_id)
    model, holders = entry.model, self._controller.holders(model_id)
    methods = set().union(*(s.held[model_id].methods for s in holders))
    settings = [
      ('Methods', ', '.join(sorted(methods))),
      ('Model path', model.model_path),
      ('Checkpoint', model.checkpoint_path),
      *(
        (f'Override {key}', value)
        for key, value in sorted(model.overrides.items())
      ),
      *(
        (f'ACL of {method}', acl)
        for method, acl in sorted(model.acls.items.items())
      ),
    ]
    return self._page(
      'Model',
      cell_plots.tiles(self._history.latest(model_id))
      + cell_plots.figures(self._history, model_id)
      + self._models([entry])
      + markup.table(
        'Settings',
        ('Setting', 'Value'),
        [[html.escape(text) for text in row] for row in settings if row[1]],
        short=('Setting',),
      )
      + server_tables.overview(holders),
      model_id,
    )

  def _server(self, address: str) -> str:
    found = [
      s for s in self._members.all(lost_too=True) if s.address == address
    ]
    if not found:
      raise errors.NotFound(f'model server {address} not found')
    [server] = found
    return self._page(
      'Server',
      cell_plots.tiles(self._history.latest(server=address))
      + cell_plots.figures(self._history, server=address)
      + server_tables.overview(found)
      + server_tables.hosts(server)
      + server_tables.methods(server)
      + markup.table(
        'Model paths that it can serve',
        ('Path',),
        [[html.escape(path)] for path in sorted(server.paths)],
      ),
      address,
    )


def _count(number: int, what: str) -> str:
  return f'{number} {what}' if number == 1 else f'{number} {what}s'


def _state(
  entry: cell_state.Published, servers: Sequence[modelets.Modelet]
) -> str:
  """How a model fares as a whole, in a word or two."""
  wanted = entry.model.requested_num_replicas
  status = [s.held[entry.model.model_id].status for s in servers]
  if status.count(held_lib.LOADED) >= wanted:
    return 'Ready' if wanted else 'No replicas wanted'
  if held_lib.LOADED in status:
    return 'Incomplete'
  if held_lib.LOADING in status:
    return 'Loading'
  return 'Failed' if status or entry.failures.items() else 'Not assigned'
