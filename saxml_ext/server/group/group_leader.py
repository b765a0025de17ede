"""A model server of several hosts, on the host that leads.

It is a model server like any other, but that its engines are the group's. When
the group cannot go on, its models count as failed, with the reason, its calls
in flight end with UNAVAILABLE, so that clients ask another replica, and it
leaves the cell; then all processes of the group end.
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
from saxml_ext.server.loading import loader
from saxml_ext.server.loading import servable

# Prepares a model in this process, see `loader.prepare` and its result.
PrepareFn: TypeAlias = Callable[[entry_lib.Spec], Any]

# Seconds for the answers on their way out.
_LINGER = 0.3
# Seconds that leaving the cell may take.
_LEAVE = 1.0


@dataclasses.dataclass(frozen=True)
class Server:
  """What of the model server the group's end concerns.

  Attributes:
    address: "host:port" with which it joins its cell.
    loop: its event loop.
    stop: makes it answer what it holds and end; called on the loop.
    leave: leaves the cell, with a reason.
  """

  address: str
  loop: asyncio.AbstractEventLoop
  stop: Callable[[], None]
  leave: Callable[[str], Coroutine[Any, Any, None]]


class GroupLeader:
  """Process 0 of a group.

  Attributes:
    hosts: names of all hosts, by number of the process.
  """

  def __init__(
    self,
    formed: formation.Formation,
    limits: group_engine.Limits,
    port: int,
    prepare: PrepareFn,
    seed: int | None = None,
  ):
    """Waits until all processes are there.

    Args:
      formed: of this process.
      limits: how long what may take.
      port: of the log; 0 picks a free one.
      prepare: prepares a model in this process.
      seed: see `loader.serve`.

    Raises:
      errors.FailedPrecondition: the port is taken.
      errors.Unavailable: some processes do not come.
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
      lambda request: prepare(entry_lib.Spec.of(request)),
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
    """Takes the server that the group's end concerns."""
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
      served = loader.serve(
        prepared.settings, prepared.codecs, runner, on_failure, self._seed
      )
    except BaseException:
      forget()
      raise
    self._served[runner.model] = served, on_failure
    return dataclasses.replace(served, on_closed=forget)

  def finish(self) -> None:
    """Ends the other processes, with 0."""
    self._leader.finish()

  def _stop(self, host: group_engine.Host) -> None:
    logging.info('stopping, because %s is to stop', host)
    if self._server is None:
      sys.stdout.flush()
      os._exit(0)
    self._server.loop.call_soon_threadsafe(self._server.stop)

  def _end(self, reason: str) -> None:
    """Leaves the cell and ends this process, whatever hangs in it."""
    begin = time.monotonic()
    for served, on_failure in list(self._served.values()):
      on_failure(reason)
      # It waits for the engine, which may hang, after it has told its callers.
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
        # The admin server will notice by itself.
        logging.warning('group: cannot leave the cell: %r', e)
    time.sleep(max(0.0, begin + _LINGER - time.monotonic()))
    self._leader.tell_end(reason)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)
