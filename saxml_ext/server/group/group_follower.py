"""Runs a model server of several hosts, on a host that is not the leader.

It does not accept requests. It repeats the leader's engine calls. On its port,
it serves health checks (grpc.health.v1), which succeed once it has joined the
group.
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

# The seconds after the drain time within which the leader must end the group.
_PATIENCE = 10.0
# The timeout of the report of a lost leader to the cell, in seconds.
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
  """Follows the leader until the leader ends the group.

  If the group cannot go on, the process ends with 1.

  Args:
    formed: The formation of this process.
    limits: The timeouts of the group.
    port: The port of the health service; 0 picks a free one.
    host: The address that `port` is on; '' stands for all interfaces.
    drain_secs: The seconds that calls in flight get after this process was
      asked to stop.
    prepare: A function that prepares a model in this process.
    leave: A function that reports the end of the server at an address to the
      cell, with the reason, if the leader cannot.

  Raises:
    errors.FailedPrecondition: The port is in use.
    errors.Unavailable: The leader cannot be reached.
  """
  loop = asyncio.get_running_loop()
  stop_signal = signals.first()
  server = grpc_aio.make_server()
  bound = grpc_util.listen(server, port, host)
  health = grpc_aio.add_reflection_and_health(server, ())
  health.set_serving(False)
  await server.start()
  leader = await asyncio.to_thread(
    leader_address.find, distributed.key_value_store(), limits.join
  )

  def on_joined() -> None:
    logging.info('group: follows %s', group_engine.Host(leader.name, 0))
    loop.call_soon_threadsafe(health.set_serving, True)

  def on_end(ended: follower_lib.Ended) -> None:
    logging.error('group: %s', ended.reason)
    if ended.orphan:
      report = asyncio.run_coroutine_threadsafe(
        leave(ended.orphan, ended.reason), loop
      )
      with contextlib.suppress(TimeoutError):
        report.result(_LEAVE)
    _exit()

  follower = follower_lib.Follower(
    leader,
    group_engine.Host(formation.host_name(), formed.process_id),
    limits,
    lambda request: prepare(entry_lib.Spec.from_request(request)),
    on_joined,
    on_end,
    cancellation.checking,
  )
  following = _in_thread(follower.run)
  print(f'Model server follows as process {formed.process_id}, port {bound}')
  sys.stdout.flush()
  stopping = asyncio.create_task(stop_signal.wait())
  await asyncio.wait((following, stopping), return_when=asyncio.FIRST_COMPLETED)
  if not following.done() and follower.ask_to_stop():
    logging.info('stopping after the leader has answered the calls in flight')
    await asyncio.wait((following,), timeout=drain_secs + _PATIENCE)
    if not following.done():
      raise errors.Unavailable(
        'this process was asked to stop, but the leader does not stop'
      )
  if following.done() and not following.result():
    await asyncio.Event().wait()  # `on_end` ends the process.
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
  """Ends this process, even if one of its threads hangs."""
  sys.stdout.flush()
  sys.stderr.flush()
  os._exit(1)
