"""Runs a model server of several hosts, on the host of the leader.

It behaves like a single-host model server; its engines run on all hosts of the
group. When the group cannot go on, its models fail with the reason. Its calls
in flight end with UNAVAILABLE, so that clients use another replica. It leaves
the cell, and then all processes of the group end.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
import dataclasses
import os
import sys
import threading
import time
from typing import Any, TypeAlias

from absl import logging

from saxml_ext.groups import distributed
from saxml_ext.groups import formation
from saxml_ext.groups import group_engine
from saxml_ext.groups import leader as leader_lib
from saxml_ext.groups import leader_address
from saxml_ext.protobuf import modelet_pb2
from saxml_ext.server.lifecycle import cancellation
from saxml_ext.server.lifecycle import entry as entry_lib
from saxml_ext.server.loading import servable

# A function that prepares a model in this process, such as `loader.prepare`.
PrepareFn: TypeAlias = Callable[[entry_lib.Spec], Any]

# The seconds that the last answers have to reach their clients.
_LINGER = 0.3
# The timeout of leaving the cell, in seconds.
_LEAVE = 1.0
# The seconds that the followers have to exit after a normal end. JAX aborts
# them once this process is gone.
_EXIT = 1.0


@dataclasses.dataclass(frozen=True)
class Server:
  """The parts of the model server that the end of the group needs.

  Attributes:
    address: The "host:port" with which it joins its cell.
    loop: The event loop.
    stop: A function that makes the server answer its pending requests and end.
      It is called on the event loop.
    leave: A function that leaves the cell, with a reason.
  """

  address: str
  loop: asyncio.AbstractEventLoop
  stop: Callable[[], None]
  leave: Callable[[str], Coroutine[Any, Any, None]]


class GroupLeader:
  """Runs the models of a group on its process 0.

  Attributes:
    hosts: The names of all hosts, by process number.
  """

  def __init__(
    self,
    formed: formation.Formation,
    limits: group_engine.Limits,
    port: int,
    prepare: PrepareFn,
    seed: int | None = None,
  ):
    """Waits until all processes have joined.

    Args:
      formed: The formation of this process.
      limits: The timeouts of the group.
      port: The port of the log; 0 picks a free one.
      prepare: A function that prepares a model in this process.
      seed: The seed for requests without one, see `servable.serve`.

    Raises:
      errors.FailedPrecondition: The port is in use.
      errors.Unavailable: Some processes do not join.
    """
    self._seed = seed
    self._server: Server | None = None
    self._served: dict[int, tuple[servable.Servable, Callable[[str], None]]]
    self._served = {}
    name = formation.host_name()
    self._leader: leader_lib.Leader[Any]
    self._leader = leader_lib.Leader(
      name,
      formed.num_processes,
      limits,
      lambda request: prepare(entry_lib.Spec.from_request(request)),
      on_end=self._end,
      on_stopping=self._stop,
      check_wanted=cancellation.check,
    )
    address = self._leader.listen(
      formed.coordinator_host, port, formed.interface
    )
    leader_address.announce(
      distributed.key_value_store(),
      leader_address.Announcement(address, self._leader.epoch, name),
    )
    hosts = self._leader.wait_for_followers()
    self.hosts: Sequence[str] = [host.name for host in hosts]
    logging.info('group: leads %s', ', '.join(map(str, hosts[1:])))

  def attach(self, server: Server) -> None:
    """Stores the server that stops with the group; announces its address."""
    self._server = server
    self._leader.tell_serving(server.address)

  def load(
    self, spec: entry_lib.Spec, on_failure: Callable[[str], None]
  ) -> servable.Servable:
    """Loads a model in every process; see `loader.load`."""
    request = modelet_pb2.LoadRequest(
      model_path=spec.model_path,
      checkpoint_path=spec.checkpoint_path,
      overrides=spec.overrides,
    )
    prepared, runner = self._leader.load(request)

    def forget() -> None:
      self._served.pop(runner.model, None)
      self._leader.unload(runner.model)

    try:
      served = servable.serve(
        prepared.settings, prepared.codecs, runner, on_failure, self._seed
      )
    except BaseException:
      forget()
      raise
    self._served[runner.model] = served, on_failure
    return dataclasses.replace(served, on_closed=forget)

  def finish(self) -> None:
    """Ends the other processes normally, with exit code 0."""
    self._leader.finish()
    time.sleep(_EXIT)

  def _stop(self, host: group_engine.Host) -> None:
    logging.info('stopping, because %s was asked to stop', host)
    if self._server is None:
      sys.stdout.flush()
      os._exit(0)
    self._server.loop.call_soon_threadsafe(self._server.stop)

  def _end(self, reason: str) -> None:
    """Leaves the cell and ends this process, even if a thread hangs."""
    begin = time.monotonic()
    for served, on_failure in list(self._served.values()):
      on_failure(reason)
      # `close` first fails the requests and then waits for the engine, which
      # may hang.
      threading.Thread(
        target=served.scheduler.close, args=(False,), daemon=True
      ).start()
    if self._server is not None:
      leaving = asyncio.run_coroutine_threadsafe(
        self._server.leave(reason), self._server.loop
      )
      try:
        leaving.result(_LEAVE)
      except Exception as e:  # pylint: disable=broad-exception-caught
        # The admin server also detects the end of a server without a report.
        logging.warning('group: cannot leave the cell: %r', e)
    time.sleep(max(0.0, begin + _LINGER - time.monotonic()))
    self._leader.tell_end(reason)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)
