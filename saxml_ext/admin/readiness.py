"""Waits until replicas of a model are loaded, or explains the failure."""

import asyncio
from collections.abc import Callable
import time

import grpc

from saxml_ext.admin.leadership import cell_state
from saxml_ext.admin.modelet import held as held_lib
from saxml_ext.admin.modelet import members as members_lib
from saxml_ext.common import errors
from saxml_ext.common import grpc_aio
from saxml_ext.common import ids

# More model servers get this many seconds to join. If none can serve a model
# path after that, the path counts as a mistake.
_JOIN_SECS = 10.0


async def wait(
  entry: cell_state.Published,
  members: members_lib.Members,
  replicas: int,
  check_leads: Callable[[], None],
) -> None:
  """Waits until `replicas` servers have loaded a model.

  Args:
    entry: The model.
    members: The model servers.
    replicas: The number of servers that must have loaded it.
    check_leads: A function that raises if another admin server leads now.

  Raises:
    Cancelled: The model was unpublished meanwhile.
    FailedPrecondition: The load failed, or no server can serve the model's
      path, and no pending event could change that.
  """
  unknown_since: float | None = None
  while replicas > 0:
    if entry.removed:
      raise grpc_aio.Verbatim(grpc.StatusCode.CANCELLED, 'Canceled')
    if _num_loaded(entry, members) >= replicas:
      return
    _check_failures(entry, members, replicas)
    unknown = members_lib.explain_unknown(
      entry.model.model_path, members.servable_paths()
    )
    patience = None
    if unknown:
      now = time.monotonic()
      unknown_since = unknown_since or now
      patience = unknown_since + _JOIN_SECS - now
      if patience <= 0:
        raise errors.FailedPrecondition(
          f'model {ids.shorten(entry.model.model_id)} cannot be loaded.'
          ' Unpublish it, then'
          f' publish it with the right path: {unknown}'
        )
    try:
      async with asyncio.timeout(patience):
        await entry.changed.wait()
    except TimeoutError:
      pass  # The loop checks the path again.
    check_leads()


def _held(
  entry: cell_state.Published, members: members_lib.Members
) -> list[held_lib.Held]:
  model_id = entry.model.model_id
  return [m.held[model_id] for m in members.all() if model_id in m.held]


def _num_loaded(
  entry: cell_state.Published, members: members_lib.Members
) -> int:
  return sum(h.status == held_lib.LOADED for h in _held(entry, members))


def _check_failures(
  entry: cell_state.Published, members: members_lib.Members, replicas: int
) -> None:
  """Raises FailedPrecondition if loads failed and no server is left to try."""
  held = _held(entry, members)
  failed = [h for h in held if h.status == held_lib.FAILED]
  if (
    not failed
    # A failure that is not counted yet will wake this call again.
    or not all(h.counted for h in failed)
    or any(h.status == held_lib.LOADING for h in held)
    or _has_untried(entry, members)
  ):
    return
  raise errors.FailedPrecondition(
    f'model {ids.shorten(entry.model.model_id)} is loaded on'
    f' {_num_loaded(entry, members)} '
    f'of {replicas} servers, and failed on: '
    + '; '.join(
      f'{address} ({failure.reason or "no reason given"})'
      for address, failure in entry.failures.items()
    )
    + '. Update its checkpoint, or unpublish it and publish it again'
  )


def _has_untried(
  entry: cell_state.Published, members: members_lib.Members
) -> bool:
  """Returns True if a failed model may still move to an untried server."""
  return any(
    not m.held
    and entry.model.model_path in m.paths
    and not entry.failures.count(m.address)
    for m in members.all()
  )
