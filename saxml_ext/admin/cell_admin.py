"""An admin server as an object, with methods to start and stop it."""

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
from saxml_ext.common import files
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
# Calls that write a change get this long to finish. Calls that only wait are
# then cut off, and their clients turn to the next admin server.
_GRACE_SECS = 0.3
# This is four times the limit of a model. The longest other requests are Joins,
# which need at most a kilobyte per model path.
_MAX_REQUEST_BYTES = 4 * validation.MAX_MODEL_BYTES
# A call waits for so many turns of so many seconds until it is known which
# server leads. The product is about the duration of a takeover.
_DOUBT_TURNS = 100
_DOUBT_SECS = 0.02
# The number of seconds between checks that location.proto names the leader. A
# former leader may write the file late, for example after its process was
# stopped.
_LOCATION_SECS = 1.0


class AdminServer:
  """An admin server of one cell. One of a cell's admin servers leads.

  Attributes:
    address: The "host:port" under which other servers reach it, once started.
    controller: The cell's state; None while the server does not lead.
    http_port: The port of the status pages, or None if there are none.
    history: The cell's last minutes; only with the status pages.
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
    """Does nothing before `start`.

    Args:
      sax_root: The directory with the cells' configs and locations.
      cell: The cell, "/sax/<cell>".
      port: The port to listen on. 0 picks a free one.
      http_port: The port of the status pages. 0 picks a free one, and None
        serves none.
      by_chip: True to assign models by the kind of chip; see `capacity`.
      access: The access lists, which must already be followed; by default,
        those of the cell's own files.
      http_host: The address of the interface for the status pages. '' is every
        interface.
      host: The address that `port` is on. '' is every interface.

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
    self.history: history.History  # Set with the pages.
    self._sampling: asyncio.Task[None]
    self._server = grpc_aio.make_server(_MAX_REQUEST_BYTES)
    self._health = grpc_aio.add_reflection_and_health(self._server, [_SERVICE])
    self._health.set_serving(False)
    self.controller: controller_lib.Controller | None = None
    self._election: election_lib.Election  # Set by `start`.
    self._running: asyncio.Task[None] | None = None
    self._leads = asyncio.Event()
    self._location: asyncio.Task[None] | None = None

  async def start(self) -> None:
    """Starts to serve, and stands by until no other server leads.

    Raises:
      FailedPrecondition: The cell was never set up, its access lists cannot
        be used, or the port is in use.
      Internal: The cell's config is damaged or incomplete.
      OSError: The config cannot be read, or the directory cannot be created.
    """
    config = cell_lib.read_config(self._root, self._cell)
    # Guides to Sax tell users to look for this line and for "SetAddr" below.
    logging.info('Loaded config: %s', text_format.MessageToString(config))
    fs_root = config.fs_root
    directory = shared_dir.open_dir(cell_lib.cell_dir(fs_root, self._cell))
    self.address = net.advertised_address(
      grpc_util.listen(self._server, self._port, self._host), self._host
    )
    if self._access is None:
      self._access = access_lib.Access.from_cell(self._root, self._cell)
      self._access.check_usable()
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
    """Waits until this server leads."""
    await self._leads.wait()

  async def failure(self) -> None:
    """Waits for an error that ends this server's election, and raises it."""
    assert self._running is not None  # It has started.
    await asyncio.shield(self._running)

  async def stop(self) -> None:
    """Finishes writes, ends all calls, and lets another server lead."""
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

    Waits for a while if no leader is known, because this server may have lacked
    the CPU time to renew its claim. The wait is a number of turns of the event
    loop, because the clock continues while the process gets no CPU time.

    Raises:
      Unavailable: This server does not lead.
    """
    for _ in range(_DOUBT_TURNS):
      if self._leads_now() or self._election.leader not in ('', self.address):
        break
      await asyncio.sleep(_DOUBT_SECS)
    return self._leading_now()

  def _leads_now(self) -> bool:
    return self.controller is not None and self._election.may_answer()

  def _leading_now(self) -> controller_lib.Controller:
    """Returns the controller if this server leads now.

    Raises:
      Unavailable: This server does not lead. Clients then read location.proto.
    """
    if self.controller and self._leads_now():
      return self.controller
    leader = self._election.leader
    known = leader and leader != self.address
    hint = (
      f'The leader is {leader}' if known else 'No leader is known right now'
    )
    raise errors.Unavailable(
      f'the admin server at {self.address} of {self._cell} is on standby.'
      f' {hint}'
    )

  # The election calls these methods.

  async def _lead(self, directory: shared_dir.SharedDir, epoch: int) -> None:
    stored = state_files.StateFiles(directory, self._cell, epoch)
    state = await asyncio.to_thread(stored.take_over)

    def save(state: admin_pb2.State) -> None:
      try:
        stored.save(state)
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
      'this server leads %s in epoch %d, with %d published models',
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
    expected = admin_pb2.Location(location=self.address).SerializeToString()
    while True:
      await asyncio.sleep(_LOCATION_SECS)
      try:
        content = await asyncio.to_thread(
          storage.read_bytes, path, check=files.check_owner
        )
      except (errors.NotFound, files.UnusableFileError):
        content = b''
      except (errors.SaxError, OSError) as e:
        logging.error('%s cannot be read: %s', path, e)
        continue
      if content != expected and self._election.is_valid():
        logging.warning('%s names another server, and is written again', path)
        try:
          await self._write_location()
        except (errors.SaxError, OSError) as e:
          logging.error('%s cannot be written: %s', path, e)

  # These methods serve the status pages.

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
      # Another cell's admin server often uses the port. This cell must still be
      # served.
      logging.warning(
        'no status pages are served: port %d of %s is not available (%s). Set'
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
    """Checks that the sender of a request may change the cell.

    See `changes.Permit`. A sender without a verified name must be on this
    machine.
    """
    names = access_lib.names_in(request.state.peer_certificate)
    if names:
      origin.check_same_origin(request)
    else:
      origin.check(request)
    assert self._access is not None  # It has started.
    self._access.check_admin(names, what, model_acl)
