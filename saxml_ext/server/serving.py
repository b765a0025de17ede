"""Runs the process of a model server, from its start to its drained end."""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from absl import logging

from saxml_ext.common.security import access
from saxml_ext.common.security import access_flags
from saxml_ext.protobuf import admin_pb2
from saxml_ext.server import membership
from saxml_ext.server import model_server
from saxml_ext.server import signals
from saxml_ext.server.group import group_leader
from saxml_ext.server.lifecycle import entry as entry_lib
from saxml_ext.server.monitoring import monitoring

if TYPE_CHECKING:
  from saxml_ext.admin import cell_admin

_STOP_REASON = 'it was asked to stop'
# The seconds between leaving the cell and refusing calls.
_LINGER_SECS = 1.0


async def serve(
  new_server: Callable[[], model_server.ModelServer],
  static: Mapping[str, entry_lib.Spec],
  *,
  sax_root: str,
  sax_cell: str,
  server_spec: admin_pb2.ModelServer,
  drain_secs: float,
  leader: group_leader.GroupLeader | None = None,
  admin_port: int | None = None,
  host: str = '',
) -> None:
  """Serves until a signal, or until a static model fails to load.

  Args:
    new_server: A function that creates the server on this event loop.
    static: The models to load at start, by key.
    sax_root: The directory where cells keep their files.
    sax_cell: The cell to join; '' for none.
    server_spec: The description of this server for its cell.
    drain_secs: The seconds that calls in flight get at the end.
    leader: The leader of the group; None if this process serves alone.
    admin_port: The port of an admin server of the cell in this process; None if
      it has none.
    host: The address that the admin server's port is on.
  """
  stop_signal = signals.first()
  server = new_server()
  access_flags.warn_if_open(access.current())
  join = admin_pb2.JoinRequest(address=server.address, model_server=server_spec)
  member = membership.Membership(sax_root, sax_cell, join)
  if leader:
    loop = asyncio.get_running_loop()
    leader.attach(
      group_leader.Server(join.address, loop, stop_signal.set, member.leave)
    )
  await server.start()
  monitor = monitoring.Monitoring(
    server.models, lambda: server.serves, tuple(static)
  )
  await monitor.start()
  admin = None
  if admin_port is not None:
    # The import takes a tenth of the time in which the server starts.
    from saxml_ext.admin import cell_admin

    # Both servers use the same access lists.
    admin = cell_admin.AdminServer(
      sax_root, sax_cell, admin_port, access=access.current(), host=host
    )
    await admin.start()
    watching = asyncio.create_task(_watch(admin))
    print(f'Admin server is serving at {admin.address}', flush=True)
  # A load may take minutes, and a signal must not wait for it.
  working = asyncio.create_task(
    _load_and_join(server, static, member if sax_cell else None)
  )
  stopping = asyncio.create_task(stop_signal.wait())
  grace = 0.0
  try:
    await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
    if working.done():
      working.result()
    await stopping
    logging.info('stopping after the calls in flight')
    grace = drain_secs
    working.cancel()
    server.announce_stop(_STOP_REASON)
    if sax_cell:
      # Then clients send no more calls, and the cell does not report a failure.
      await member.leave(_STOP_REASON)
      # The cell's clients get the change within milliseconds. Later calls are
      # still answered.
      await asyncio.sleep(min(_LINGER_SECS, grace))
  finally:
    working.cancel()
    stopping.cancel()
    await server.stop(grace)
    await monitor.stop()
    if admin is not None:
      watching.cancel()
      await admin.stop()  # Lets another admin server lead.
    if leader:
      await asyncio.to_thread(leader.finish)


async def _load_and_join(
  server: model_server.ModelServer,
  static: Mapping[str, entry_lib.Spec],
  member: membership.Membership | None,
) -> None:
  for key, spec in static.items():
    await asyncio.wrap_future(server.models.load(key, spec))
  print(f'Model server is serving at {server.address}', flush=True)
  if member:
    await member.run()


async def _watch(admin: 'cell_admin.AdminServer') -> None:
  """Logs a failure of the admin server in this process."""
  try:
    await admin.failure()
  except Exception:  # pylint: disable=broad-exception-caught
    # Models can be served without it, or by another admin server.
    logging.exception('the admin server of this process has failed')
