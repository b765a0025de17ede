"""The model servers of a cell, from joining until they are forgotten."""

import asyncio
from collections.abc import Callable, Mapping
import functools
import re
import weakref

from absl import logging

from saxml_ext.admin.modelet import held as held_lib
from saxml_ext.admin.modelet import modelets
from saxml_ext.common import errors
from saxml_ext.common import ids
from saxml_ext.protobuf import admin_pb2

# The best replicas of a model come first.
_ORDER = {held_lib.LOADED: 0, held_lib.LOADING: 1, held_lib.FAILED: 2}
# What other model servers announce, and no target of another kind (gRPC would
# take "unix:/..." and the like as well).
_ADDRESS = re.compile(r'[^\s/]{1,255}:([0-9]{1,5})', re.ASCII)

# Servers that are contacted at once for one caller. A contact may take 10 s.
_MOST_CONTACTS = 8
# The same few paths are asked for with every listing of a cell.
_CACHED_PATHS = 1024
# Names to show where none is near.
_EXAMPLES = 3


def _order(model_id: str, holder: modelets.Modelet) -> int:
  return _ORDER[holder.held[model_id].status]


class Members:
  """Who has joined; use it in one event loop."""

  def __init__(
    self,
    make: Callable[[admin_pb2.JoinRequest], modelets.Modelet],
    check_leads: Callable[[], None],
    events: 'asyncio.Queue[modelets.Event]',
  ):
    """Starts with no server.

    Args:
      make: Makes a `Modelet` that is not contacted yet.
      check_leads: Raises Unavailable once another admin server has taken over.
      events: The queue for all that happens to servers.
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
    """The server of that address; raises KeyError."""
    return self._modelets[address]

  def all(self, lost_too: bool = False) -> list[modelets.Modelet]:
    """The living model servers (on demand also the lost ones), by address."""
    return [
      m for _, m in sorted(self._modelets.items()) if lost_too or not m.lost
    ]

  def holders(self) -> Mapping[str, list[modelets.Modelet]]:
    """The servers of every assigned model: loaded first, then by address."""
    result: dict[str, list[modelets.Modelet]] = {}
    for modelet in self.all():
      for model_id in modelet.held:
        result.setdefault(model_id, []).append(modelet)
    for model_id, found in result.items():
      found.sort(key=functools.partial(_order, model_id))
    return result

  def servable_paths(self) -> frozenset[str]:
    """Model paths that a server can serve; a lost one may come back."""
    if self._paths is None:
      self._paths = frozenset().union(
        *(m.paths for m in self._modelets.values())
      )
    return self._paths

  async def join(
    self, request: admin_pb2.JoinRequest, client: str = ''
  ) -> None:
    """Takes a model server in, or notes that it is still there, or leaves.

    Args:
      request: The server's introduction.
      client: The name or host of the caller.

    Raises:
      InvalidArgument: the address is not "host:port".
      DeadlineExceeded: the server does not answer.
      Unavailable: another admin server has taken over meanwhile.
    """
    address = request.address
    for text in (address, request.data_address or address):
      match = _ADDRESS.fullmatch(text)
      if not match or not 0 < int(match[1]) < 2**16:
        raise errors.InvalidArgument(
          f'address {ids.quote(text[:300])} of a model server must have the '
          'form host:port, with a port from 1 to 65535'
        )
    # A server may get impatient and join once more while it is looked at.
    lock = self._joining.setdefault(address, asyncio.Lock())
    async with lock:
      known = self._modelets.get(address)
      if request.leaving:
        if known:
          known.leave(request.leaving)
        return
      if known and not known.lost and known.join == request:
        # If it was restarted, the next poll will tell what it has forgotten.
        return
      # Others join meanwhile, however many dead addresses one caller names.
      turns = self._turns.setdefault(client, asyncio.Semaphore(_MOST_CONTACTS))
      async with turns:
        await self._take_in(request)

  async def _take_in(self, request: admin_pb2.JoinRequest) -> None:
    modelet = self._make(request)
    try:
      status = await modelet.connect()
      # Nobody would close what is taken in from here on.
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
      '%s: joins; it can serve %d model paths',
      request.address,
      len(modelet.paths),
    )
    self._events.put_nowait(modelets.Found(modelet, status))

  def forget(self, modelet: modelets.Modelet) -> None:
    """Gives a server up that was lost and did not come back."""
    logging.info('%s: is forgotten', modelet.address)
    if self._modelets.get(modelet.address) is modelet:
      self._remove(modelet)

  async def close(self) -> None:
    """Lets go of the servers; what they hold is left as it is."""
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
  """Explains why a model of this path is loaded nowhere.

  Args:
    path: The model path of a published model.
    servable: The model paths that the joined servers can serve.

  Returns:
    A clause for messages; '' if a server can serve the path, or as long as
    nothing is known of what servers can serve.
  """
  if not servable or path in servable:
    return ''
  near = ids.near_misses(path, servable)
  if near:
    hint = f'did you mean {" or ".join(near)}?'
  else:
    some = sorted(servable)[:_EXAMPLES]
    hint = f'they can serve {len(servable)} others, such as {", ".join(some)}'
  return f'no joined model server can serve the model path {path}; {hint}'
