"""Tracks the model servers of a cell, from their join to their removal."""

import asyncio
from collections.abc import Callable, Mapping
import functools
import re
import weakref

from absl import logging

from saxml_ext.admin.modelet import connection as connection_lib
from saxml_ext.admin.modelet import held as held_lib
from saxml_ext.admin.modelet import modelets
from saxml_ext.common import errors
from saxml_ext.common import ids
from saxml_ext.protobuf import admin_pb2

# The best replicas of a model come first.
_ORDER = {held_lib.LOADED: 0, held_lib.LOADING: 1, held_lib.FAILED: 2}
# Model servers announce this form. gRPC would also accept other targets, such
# as "unix:/...".
_ADDRESS = re.compile(r'[^\s/]{1,255}:([0-9]{1,5})', re.ASCII)

# One caller can make this server connect to this many addresses at once. The
# time for a connection covers one lost packet. Of the servers that accept one,
# this many of one caller and host are contacted at once. A contact may take
# 10 s, or less if others wait.
_MOST_PROBES = 64
_PROBE_SECS = 2.0
_MOST_CONTACTS = 8
_BUSY_CONTACT_SECS = 2.0
# Every listing of a cell asks for the same few paths.
_CACHED_PATHS = 1024
# The limit of the reason with which a server leaves, in characters.
_MOST_REASON = 1000
# The number of examples to show if no name is similar.
_EXAMPLES = 3


def _order(model_id: str, holder: modelets.Modelet) -> int:
  return _ORDER[holder.held[model_id].status]


class Members:
  """The model servers that have joined. Use it in one event loop."""

  def __init__(
    self,
    make: Callable[[admin_pb2.JoinRequest], modelets.Modelet],
    check_leads: Callable[[], None],
    events: 'asyncio.Queue[modelets.Event]',
  ):
    """Starts without servers.

    Args:
      make: A function that makes a `Modelet` without contacting the server.
      check_leads: A function that raises Unavailable once another admin server
        has taken over.
      events: The queue for all changes of servers.
    """
    self._make = make
    self._check_leads = check_leads
    self._events = events
    self._modelets: dict[str, modelets.Modelet] = {}
    self._joining: weakref.WeakValueDictionary[str, asyncio.Lock] = (
      weakref.WeakValueDictionary()
    )
    self._turns: weakref.WeakValueDictionary[str, asyncio.Semaphore] = (
      weakref.WeakValueDictionary()
    )
    self._closing: set[asyncio.Task[None]] = set()
    self._paths: frozenset[str] | None = None

  def __getitem__(self, address: str) -> modelets.Modelet:
    """Returns the server of that address; raises KeyError."""
    return self._modelets[address]

  def all(self, lost_too: bool = False) -> list[modelets.Modelet]:
    """Returns the model servers by address: the live ones, or all.

    Args:
      lost_too: True to include the lost ones.
    """
    return [
      m for _, m in sorted(self._modelets.items()) if lost_too or not m.lost
    ]

  def holders(self) -> Mapping[str, list[modelets.Modelet]]:
    """Returns the servers of all models: loaded ones first, then by address."""
    result: dict[str, list[modelets.Modelet]] = {}
    for modelet in self.all():
      for model_id in modelet.held:
        result.setdefault(model_id, []).append(modelet)
    for model_id, holders in result.items():
      holders.sort(key=functools.partial(_order, model_id))
    return result

  def servable_paths(self) -> frozenset[str]:
    """Returns the model paths that any server can serve.

    Lost servers are included, because they may come back.
    """
    if self._paths is None:
      self._paths = frozenset().union(
        *(m.paths for m in self._modelets.values())
      )
    return self._paths

  async def join(
    self, request: admin_pb2.JoinRequest, client: str = ''
  ) -> None:
    """Adds a model server, or handles a repeated or final announcement.

    Args:
      request: The server's announcement.
      client: The name or host of the caller.

    Raises:
      InvalidArgument: The address is not "host:port".
      DeadlineExceeded: The server cannot be reached, or does not answer.
      Unavailable: Another admin server has taken over meanwhile.
    """
    address = request.address
    for text in (address, request.data_address or address):
      match = _ADDRESS.fullmatch(text)
      if not match or not 0 < int(match[1]) < 2**16:
        raise errors.InvalidArgument(
          f'address {ids.quote(text)} of a model server must have the'
          ' form host:port, with a port from 1 to 65535'
        )
    # A server may join again while its first request is still being handled.
    lock = self._joining.setdefault(address, asyncio.Lock())
    async with lock:
      known = self._modelets.get(address)
      if request.leaving:
        if known:
          known.leave(request.leaving[:_MOST_REASON])
        return
      if known and not known.lost and known.join == request:
        # If the server was restarted, the next poll will report the missing
        # models.
        return
      # The limits are per client, so that a client with many dead addresses
      # does not block the servers of others. Dead addresses do not even block
      # the servers of the same client.
      async with self._turns_of(client, _MOST_PROBES):
        state = await connection_lib.probe(address, _PROBE_SECS)
      if state is not connection_lib.PortState.TAKEN:
        raise errors.DeadlineExceeded(
          f'model server {address} cannot be reached (its answer to a'
          f' connection: {state.value}). Join after the server has started, with'
          ' an address that the admin server can reach'
        )
      host = address.rpartition(':')[0]
      turns = self._turns_of(f'{client} {host}', _MOST_CONTACTS)
      timeout = _BUSY_CONTACT_SECS if turns.locked() else None
      async with turns:
        await self._take_in(request, timeout)

  def _turns_of(self, name: str, most: int) -> asyncio.Semaphore:
    return self._turns.setdefault(name, asyncio.Semaphore(most))

  async def _take_in(
    self, request: admin_pb2.JoinRequest, timeout: float | None
  ) -> None:
    modelet = self._make(request)
    try:
      status = await modelet.connect(timeout)
      # After a takeover, nothing would close a server that is added here.
      self._check_leads()
    except BaseException:
      await modelet.close()
      raise
    if known := self._modelets.get(request.address):
      modelet.former = known.former
      self._remove(known)
    self._modelets[request.address] = modelet
    self._paths = None
    modelet.start()
    logging.info(
      '%s: joined, and can serve %d model paths',
      request.address,
      len(modelet.paths),
    )
    self._events.put_nowait(modelets.Reachable(modelet, status))

  def forget(self, modelet: modelets.Modelet) -> None:
    """Removes a lost server that did not come back."""
    logging.info('%s: removed, because it stayed lost', modelet.address)
    if self._modelets.get(modelet.address) is modelet:
      self._remove(modelet)

  async def close(self) -> None:
    """Disconnects from the servers, which keep their models."""
    await asyncio.gather(
      *self._closing, *(m.close() for m in self._modelets.values())
    )

  def _remove(self, modelet: modelets.Modelet) -> None:
    del self._modelets[modelet.address]
    self._paths = None
    modelet.release()
    closing = asyncio.create_task(modelet.close())
    self._closing.add(closing)
    closing.add_done_callback(self._closing.discard)


@functools.lru_cache(_CACHED_PATHS)
def explain_unknown(path: str, servable: frozenset[str]) -> str:
  """Explains why no server loads a model of this path.

  Args:
    path: The model path of a published model.
    servable: The model paths that the joined servers can serve.

  Returns:
    A clause for messages. It is '' if a server can serve the path, or if no
    servable path is known.
  """
  if not servable or path in servable:
    return ''
  near = ids.near_misses(path, servable)
  if near:
    hint = f'Did you mean {" or ".join(map(ids.shorten, near))}?'
  else:
    some = map(ids.shorten, sorted(servable)[:_EXAMPLES])
    hint = f'They can serve {len(servable)} others, such as {", ".join(some)}'
  return (
    'no joined model server can serve the model path'
    f' {ids.shorten(path)}. {hint}'
  )
