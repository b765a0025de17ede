"""An admin server as an object: starts, stands by, leads a cell, stops."""

import asyncio
import secrets
import ssl

from absl import logging
from google.protobuf import text_format
import prometheus_client
from starlette import requests

from saxml_ext.admin import controller as controller_lib
from saxml_ext.admin import service
from saxml_ext.admin import validation
from saxml_ext.admin.leadership import election as election_lib
from saxml_ext.admin.leadership import shared_dir
from saxml_ext.admin.leadership import state_files
from saxml_ext.admin.status import changes
from saxml_ext.admin.status import history
from saxml_ext.admin.status import metrics
from saxml_ext.admin.status import pages
from saxml_ext.admin.status import status_page
from saxml_ext.common import cell as cell_lib
from saxml_ext.common import errors
from saxml_ext.common import grpc_aio
from saxml_ext.common import grpc_util
from saxml_ext.common import ids
from saxml_ext.common import net
from saxml_ext.common import storage
from saxml_ext.common.security import access as access_lib
from saxml_ext.common.telemetry import origin
from saxml_ext.common.telemetry import web
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import admin_pb2_grpc

_SERVICE = 'sax.Admin'
# Changes that are being written get this long to be acknowledged; calls that
# only wait are cut off then, their clients turn to the next admin server.
_GRACE_SECS = 0.3
# Four times what a model may have. The longest other requests are Joins, with a
# model path per kilobyte at most.
_MAX_REQUEST_BYTES = 4 * validation.MAX_MODEL_BYTES
# A call waits so many times so many seconds for this server to know whether it
# leads: together about as long as a takeover.
_DOUBT_TURNS = 100
_DOUBT_SECS = 0.02
# Seconds between two looks whether location.proto still names the leader: a
# former one may have been stopped just before it wrote it.
_LOCATION_SECS = 1.0


class AdminServer:
  """An admin server of one cell; of several, one leads.

  Attributes:
    address: "host:port" under which others reach it, once started.
    controller: the cell's state, while it leads.
    http_port: of the status pages, None if there are none.
    history: of the cell's last minutes, with the status pages.
  """

  def __init__(
    self,
    sax_root: str,
    cell: str,
    port: int,
    http_port: int | None = None,
    by_chip: bool = False,
    access: access_lib.Access | None = None,
    http_host: str = '127.0.0.1',
    host: str = '',
  ):
    """Touches nothing yet.

    Args:
      sax_root: directory with the cells' configs and locations.
      cell: "/sax/<cell>".
      port: to listen on; 0 picks a free one.
      http_port: of the status pages; 0 picks a free one, None serves none.
      by_chip: how models are given to servers, see `capacity`.
      access: says who may call, already followed; None: as the cell's own
        files do.
      http_host: address of the interface for the status pages; '' is every one.
      host: The address that `port` is on; '' is every interface.

    Raises:
      InvalidArgument: `cell` is not a cell id.
    """
    self.address = ''
    self._root = sax_root
    self._cell = str(ids.parse_cell_id(cell))
    self._port = port
    self._host = host
    self._by_chip = by_chip
    self._access = access
    self.http_port = http_port
    self._http_host = http_host
    self._http: web.WebServer | None = None
    self.history: history.History  # With the pages.
    self._sampling: asyncio.Task[None]
    self._server = grpc_aio.make_server(_MAX_REQUEST_BYTES)
    self._health = grpc_aio.add_reflection_and_health(self._server, [_SERVICE])
    self._health.set_serving(False)
    self.controller: controller_lib.Controller | None = None
    self._election: election_lib.Election  # Once started.
    self._running: asyncio.Task[None] | None = None
    self._leads = asyncio.Event()
    self._location: asyncio.Task[None] | None = None

  async def start(self) -> None:
    """Begins to serve, and to stand by until no other one leads.

    Raises:
      FailedPrecondition: the cell was never set up, or the port is taken.
      Internal: the cell's config is corrupt.
      OSError: the config cannot be read, or the directory not be created.
    """
    config = cell_lib.read_config(self._root, self._cell)
    # This line and "SetAddr" below are where guides to Sax look for them.
    logging.info('Loaded config: %s', text_format.MessageToString(config))
    fs_root = config.fs_root
    directory = shared_dir.open_dir(cell_lib.cell_dir(fs_root, self._cell))
    self.address = net.advertised_address(
      grpc_util.listen(self._server, self._port, self._host), self._host
    )
    if self._access is None:
      self._access = access_lib.Access.of_cell(self._root, self._cell)
      self._access.follow()
    self._election = election_lib.Election(
      directory,
      self.address,
      election_lib.timing_of(directory),
      lambda epoch: self._lead(directory, epoch),
      self._depose,
    )
    admin_pb2_grpc.add_AdminServicer_to_server(
      service.AdminService(self._cell, self._leading, self._access),
      self._server,
    )
    await self._start_http()
    await self._server.start()
    self._running = asyncio.create_task(self._election.run())
    logging.info('admin server of %s is at %s', self._cell, self.address)

  async def leading(self) -> None:
    """Returns once it leads."""
    await self._leads.wait()

  async def failure(self) -> None:
    """Raises what ended its part in the election; else never returns."""
    assert self._running is not None  # It has started.
    await asyncio.shield(self._running)

  async def stop(self) -> None:
    """Finishes what is being written, ends all calls, lets others lead."""
    self._health.stop()
    await self._server.stop(_GRACE_SECS)
    if self._running:
      self._running.cancel()
      await asyncio.gather(self._running, return_exceptions=True)
    await self._stop_http()
    if self._access:
      self._access.close()

  async def _leading(self) -> controller_lib.Controller:
    """Returns the controller if this server leads.

    Waits for a while if nobody is known to lead, because this server may have
    lacked the CPU time to renew its claim. The wait is counted in turns of the
    event loop: the clock goes on while the process gets no CPU time.

    Raises:
      Unavailable: it does not lead.
    """
    for _ in range(_DOUBT_TURNS):
      if self._leads_now() or self._election.leader not in ('', self.address):
        break
      await asyncio.sleep(_DOUBT_SECS)
    return self._leading_now()

  def _leads_now(self) -> bool:
    return self.controller is not None and self._election.may_answer()

  def _leading_now(self) -> controller_lib.Controller:
    """Returns the controller if this server leads at this moment.

    Raises:
      Unavailable: it does not; clients look into location.proto then.
    """
    if self.controller and self._leads_now():
      return self.controller
    leader = self._election.leader
    raise errors.Unavailable(
      f'the admin server at {self.address} of {self._cell} stands by; '
      + (
        f'the leader is {leader}'
        if leader and leader != self.address
        else 'no leader is known right now'
      )
    )

  # What the election wants.

  async def _lead(self, directory: shared_dir.SharedDir, epoch: int) -> None:
    files = state_files.StateFiles(directory, self._cell, epoch)
    state = await asyncio.to_thread(files.take_over)

    def save(state: admin_pb2.State) -> None:
      try:
        files.save(state)
      except errors.Aborted as e:
        self._election.resign(e.message)
        raise

    self.controller = controller_lib.Controller(
      state,
      save,
      f'{self.address}_{secrets.token_hex(8)}',
      self._election.is_valid,
      self._by_chip,
    )
    await self._write_location()
    self._location = asyncio.create_task(self._keep_location())
    self._health.set_serving(True)
    self._leads.set()
    logging.info(
      'leads %s in epoch %d; it publishes %d models',
      self._cell,
      epoch,
      len(state.models),
    )

  async def _depose(self) -> None:
    self._leads.clear()
    self._health.set_serving(False)
    if self._location:
      self._location.cancel()
    controller, self.controller = self.controller, None
    if controller:
      await controller.close()

  async def _write_location(self) -> None:
    await asyncio.to_thread(
      cell_lib.write_location,
      self._root,
      self._cell,
      admin_pb2.Location(location=self.address),
    )
    logging.info(
      'SetAddr %s "%s"',
      cell_lib.location_path(self._root, self._cell),
      self.address,
    )

  async def _keep_location(self) -> None:
    path = cell_lib.location_path(self._root, self._cell)
    wanted = admin_pb2.Location(location=self.address).SerializeToString()
    while True:
      await asyncio.sleep(_LOCATION_SECS)
      try:
        found = await asyncio.to_thread(storage.read_bytes, path)
      except errors.NotFound:
        found = b''
      except (errors.SaxError, OSError) as e:
        logging.error('%s cannot be read: %s', path, e)
        continue
      if found != wanted and self._election.is_valid():
        logging.warning('%s names somebody else; writing it anew', path)
        try:
          await self._write_location()
        except (errors.SaxError, OSError) as e:
          logging.error('%s cannot be written: %s', path, e)

  # The status pages.

  async def _start_http(self) -> None:
    if self.http_port is None:
      return
    self.history = history.History(lambda: self.controller)
    registry = prometheus_client.CollectorRegistry()
    registry.register(
      metrics.CellCollector(lambda: self.controller, self._election)
    )
    forms = changes.Changes(self._cell, self._leading_now, self._permit)
    self._http = web.WebServer(
      pages.Pages(self._page, forms, registry).app(),
      web.server_context(ssl.CERT_OPTIONAL),
    )
    try:
      await self._http.start(self.http_port, self._http_host)
    except OSError as e:
      # Often another cell's admin server; no reason not to serve this one.
      logging.warning(
        'no status pages: port %d of %s cannot be listened on (%s); give'
        ' another --http_port or --http_host',
        self.http_port,
        self._http_host or 'every interface',
        e,
      )
      self._http = self.http_port = None
      return
    self._sampling = asyncio.create_task(self.history.run())
    self.http_port = self._http.port
    scheme = 'https' if web.is_https() else 'http'
    logging.info('status pages at %s://localhost:%d', scheme, self.http_port)

  async def _stop_http(self) -> None:
    if self._http:
      self._sampling.cancel()
      await self._http.stop()

  def _page(self, path: str, changes_too: bool) -> str:
    controller = self.controller
    if controller is None:
      return status_page.standby(
        self._cell, self.address, self._election.leader
      )
    return status_page.StatusPage(
      self._cell, controller, self.history, changes_too
    ).render(path)

  def _permit(
    self, request: requests.Request, what: str, model_acl: str
  ) -> None:
    """Lets those change the cell whom its lists let, see `changes.Permit`.

    Who has no verified name must be on this machine.
    """
    names = access_lib.names_in(request.state.peer_certificate)
    if names:
      origin.check_same_origin(request)
    else:
      origin.check(request)
    assert self._access is not None  # It has started.
    self._access.check_admin(names, what, model_acl)
