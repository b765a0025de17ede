"""The life of a model server's process, from its start to its drained end."""

import asyncio
from collections.abc import Mapping
import dataclasses

from absl import logging

from saxml_ext.common.security import access
from saxml_ext.common.security import access_flags
from saxml_ext.protobuf import admin_pb2
from saxml_ext.server import membership
from saxml_ext.server import model_server
from saxml_ext.server import signals
from saxml_ext.server.group import group_leader
from saxml_ext.server.lifecycle import entry as entry_lib
from saxml_ext.server.lifecycle import lifecycle
from saxml_ext.server.loading import servable
from saxml_ext.server.monitoring import monitoring
from saxml_ext.server.startup import cell_options as behaviour_lib
from saxml_ext.server.startup import embedded_admin

_STOP_REASON = 'it was told to stop'
# Seconds from leaving the cell to refusing calls.
_LINGER_SECS = 1.0


@dataclasses.dataclass(frozen=True)
class Options:
  """What to serve, and where.

  Attributes:
    load_fn: loads models.
    port: 0 picks a free one.
    sax_root: where cells keep their files.
    sax_cell: the cell to join; '' for none.
    server_spec: what the cell is told of this server.
    static: models to load at start, by key.
    drain_secs: that calls in flight get at the end.
    leader: of the group that computes; None: this process alone does.
    behaviour: what may be chosen of the server.
    admin_port: of an admin server of the cell in this process; None: it has
      none.
    host: The address that both ports are on; '' is every interface.
  """

  load_fn: lifecycle.LoadFn[servable.Servable]
  port: int
  sax_root: str
  sax_cell: str
  server_spec: admin_pb2.ModelServer
  static: Mapping[str, entry_lib.Spec]
  drain_secs: float
  leader: group_leader.GroupLeader | None = None
  behaviour: behaviour_lib.Behaviour = behaviour_lib.DEFAULT
  admin_port: int | None = None
  host: str = ''


async def serve(options: Options) -> None:
  """Serves until a signal, or until a static model fails to load."""
  told = signals.first()
  server = model_server.ModelServer(
    options.load_fn, options.port, options.behaviour, options.host
  )
  access_flags.warn_if_open(access.current())
  join = admin_pb2.JoinRequest(
    address=server.address,
    model_server=options.server_spec,
  )
  member = membership.Membership(options.sax_root, options.sax_cell, join)
  if options.leader:
    loop = asyncio.get_running_loop()
    options.leader.attach(
      group_leader.Server(join.address, loop, told.set, member.leave)
    )
  await server.start()
  monitor = monitoring.Monitoring(
    server.models, lambda: server.serves, tuple(options.static)
  )
  await monitor.start()
  admin = None
  if options.admin_port is not None:
    admin = embedded_admin.EmbeddedAdmin(
      options.sax_root, options.sax_cell, options.admin_port, options.host
    )
    await admin.start()
  # A load may take minutes; the signal is not to wait for it.
  working = asyncio.create_task(_load_and_join(server, options, member))
  stopping = asyncio.create_task(told.wait())
  grace = 0.0
  try:
    await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
    if working.done():
      working.result()
    await stopping
    logging.info('stopping; calls in flight are answered first')
    grace = options.drain_secs
    working.cancel()
    server.announce_stop(_STOP_REASON)
    if options.sax_cell:
      # So that nobody sends more, nor takes this server for one that failed.
      await member.leave(_STOP_REASON)
      # The cell's clients hear of it within milliseconds; who has not heard
      # yet is answered all the same.
      await asyncio.sleep(min(_LINGER_SECS, grace))
  finally:
    working.cancel()
    stopping.cancel()
    await server.stop(grace)
    await monitor.stop()
    if admin is not None:
      await admin.stop()
    if options.leader:
      await asyncio.to_thread(options.leader.finish)


async def _load_and_join(
  server: model_server.ModelServer,
  options: Options,
  member: membership.Membership,
) -> None:
  for key, each in options.static.items():
    await asyncio.wrap_future(server.models.load(key, each))
  print(f'Model server is serving at {server.address}', flush=True)
  if options.sax_cell:
    await member.run()
