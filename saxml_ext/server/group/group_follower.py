"""A model server of several hosts, on a host that does not lead.

It takes no requests: it makes the calls of its engines that the leader makes.
On its port it says whether it is one of the group (grpc.health.v1).
"""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent import futures
import contextlib
import os
import sys
import threading
from typing import Any, NoReturn

from absl import logging

from saxml_ext.common import errors
from saxml_ext.common import grpc_aio
from saxml_ext.common import grpc_util
from saxml_ext.groups import distributed
from saxml_ext.groups import follower as follower_lib
from saxml_ext.groups import formation
from saxml_ext.groups import group_engine
from saxml_ext.groups import leader_address
from saxml_ext.server import signals
from saxml_ext.server.lifecycle import cancellation
from saxml_ext.server.lifecycle import entry as entry_lib

# Seconds beyond those of the drain in which the leader says that all is done.
_PATIENCE = 10.0
# Seconds that telling the cell of a lost leader may take.
_LEAVE = 1.0


async def serve(
  formed: formation.Formation,
  limits: group_engine.Limits,
  port: int,
  host: str,
  drain_secs: float,
  prepare: Callable[[entry_lib.Spec], group_engine.Prepared],
  leave: Callable[[str, str], Coroutine[Any, Any, None]],
) -> None:
  """Follows the leader until it says that all is done.

  The process ends, with 1, when the group cannot go on.

  Args:
    formed: of this process.
    limits: how long what may take.
    port: to say on how this process is; 0 picks a free one.
    host: The address that `port` is on; '' is every interface.
    drain_secs: that the leader gives calls in flight, once this process was
      told to stop.
    prepare: prepares a model in this process.
    leave: tells the cell that the server of an address has left, and why, in
      place of a leader that cannot.

  Raises:
    errors.FailedPrecondition: the port is taken.
    errors.Unavailable: the leader cannot be reached.
  """
  loop = asyncio.get_running_loop()
  told = signals.first()
  server = grpc_aio.make_server()
  bound = grpc_util.listen(server, port, host)
  health = grpc_aio.add_reflection_and_health(server, ())
  health.set_serving(False)
  await server.start()
  leader = await asyncio.to_thread(
    leader_address.find, distributed.key_value_store(), limits.join
  )
  joined = asyncio.Event()

  def on_joined() -> None:
    logging.info('group: follows %s', group_engine.Host(leader.name, 0))
    loop.call_soon_threadsafe(health.set_serving, True)
    loop.call_soon_threadsafe(joined.set)

  def on_end(ended: follower_lib.Ended) -> None:
    logging.error('group: %s', ended.reason)
    if ended.orphan:
      told = asyncio.run_coroutine_threadsafe(
        leave(ended.orphan, ended.reason), loop
      )
      with contextlib.suppress(TimeoutError):
        told.result(_LEAVE)
    _exit()

  follower = follower_lib.Follower(
    leader,
    group_engine.Host(formation.host_name(), formed.process_id),
    limits,
    lambda request: prepare(entry_lib.Spec.of(request)),
    on_joined,
    on_end,
    cancellation.checking,
  )
  following = _in_thread(follower.run)
  print(f'Model server follows as process {formed.process_id}, port {bound}')
  sys.stdout.flush()
  stopping = asyncio.create_task(told.wait())
  await asyncio.wait((following, stopping), return_when=asyncio.FIRST_COMPLETED)
  if not following.done() and joined.is_set():
    logging.info('stopping; the leader answers calls in flight first')
    follower.ask_to_stop()
    await asyncio.wait((following,), timeout=drain_secs + _PATIENCE)
    if not following.done():
      raise errors.Unavailable(
        'told to stop, but the leader of the group does not'
      )
  if following.done() and not following.result():
    await asyncio.Event().wait()  # For `on_end`, which ends the process.
  health.stop()
  await server.stop(0)


def _in_thread(function: Callable[[], bool]) -> asyncio.Future[bool]:
  """Runs a function on a thread that does not keep the process alive."""
  future: futures.Future[bool] = futures.Future()

  def run() -> None:
    try:
      future.set_result(function())
    except errors.SaxError as e:
      future.set_exception(e)

  threading.Thread(target=run, name='follower', daemon=True).start()
  return asyncio.wrap_future(future)


def _exit() -> NoReturn:
  """Ends this process, whatever hangs in it."""
  sys.stdout.flush()
  sys.stderr.flush()
  os._exit(1)
