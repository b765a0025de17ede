"""An admin server as an object: starts, serves a cell, stops."""

import secrets

from absl import logging

from saxml_ext.admin import controller as controller_lib
from saxml_ext.admin import http_server
from saxml_ext.admin import service
from saxml_ext.admin import status_page
from saxml_ext.common import cell as cell_lib
from saxml_ext.common import errors
from saxml_ext.common import grpc_aio
from saxml_ext.common import grpc_util
from saxml_ext.common import ids
from saxml_ext.common import net
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import admin_pb2_grpc

_SERVICE = 'sax.Admin'
# Changes that are being written get this long to be acknowledged; calls that
# only wait are cut off then, their clients turn to the next admin server.
_GRACE_SECS = 0.3


class AdminServer:
  """The admin server of one cell.

  Attributes:
    address: "host:port" under which others reach it, once started.
    controller: the cell's state, once started.
    http_port: of the status pages, None if there are none.
  """

  def __init__(
      self, sax_root: str, cell: str, port: int, http_port: int | None = None
  ):
    """Touches nothing yet.

    Args:
      sax_root: directory with the cells' configs and locations.
      cell: "/sax/<cell>".
      port: to listen on; 0 picks a free one.
      http_port: of the status pages; 0 picks a free one, None serves none.

    Raises:
      InvalidArgument: `cell` is not a cell id.
    """
    self.address = ''
    self._root = sax_root
    self._cell = str(ids.parse_cell_id(cell))
    self._port = port
    self.http_port = http_port
    self._http: http_server.HttpServer | None = None
    self._server = grpc_aio.make_server()
    self._health = grpc_aio.add_reflection_and_health(self._server, [_SERVICE])
    self.controller: controller_lib.Controller | None = None

  async def start(self) -> None:
    """Reads the cell's files, serves, and then says where.

    Raises:
      FailedPrecondition: the cell was never set up, or the port is taken.
      Internal: a file of the cell is corrupt.
      OSError: a file cannot be read or written.
    """
    fs_root = cell_lib.read_config(self._root, self._cell).fs_root
    try:
      state = cell_lib.read_state(fs_root, self._cell)
    except errors.NotFound:
      state = admin_pb2.State()
    # A directory that cannot be written is better found now than at the
    # first publish.
    cell_lib.write_state(fs_root, self._cell, state)
    self.controller = controller_lib.Controller(
        state, lambda s: cell_lib.write_state(fs_root, self._cell, s)
    )
    self.address = net.advertised_address(
        grpc_util.listen(self._server, self._port)
    )
    admin_pb2_grpc.add_AdminServicer_to_server(
        service.AdminService(
            self._cell,
            f'{self.address}_{secrets.token_hex(8)}',
            self.controller,
        ),
        self._server,
    )
    await self._start_http()
    await self._server.start()
    # Last: whoever reads it finds us serving.
    cell_lib.write_location(
        self._root, self._cell, admin_pb2.Location(location=self.address)
    )
    logging.info(
        'admin server of %s serves %d models at %s',
        self._cell,
        len(state.models),
        self.address,
    )

  async def stop(self) -> None:
    """Finishes what is being written and ends all calls."""
    self._health.stop()
    await self._server.stop(_GRACE_SECS)
    if self._http:
      await self._http.stop()
    if self.controller:
      await self.controller.close()

  async def _start_http(self) -> None:
    if self.http_port is None:
      return
    self._http = http_server.HttpServer(
        status_page.StatusPage(self._cell, self.controller).render
    )
    try:
      await self._http.start(self.http_port)
    except OSError as e:
      # Often another cell's admin server; no reason not to serve this one.
      logging.warning(
          'no status pages: port %d is taken (%s); give another ' '--http_port',
          self.http_port,
          e,
      )
      self.http_port = None
      return
    self.http_port = self._http.port
    logging.info('status pages at http://localhost:%d', self.http_port)
