"""Waits until replicas of a model are loaded, or tells why that is hopeless."""

import asyncio
from collections.abc import Callable
import time

import grpc

from saxml_ext.admin.leadership import cell_state
from saxml_ext.admin.modelet import held as held_lib
from saxml_ext.admin.modelet import members as members_lib
from saxml_ext.common import errors
from saxml_ext.common import grpc_aio

# Seconds that more model servers get to join before a model path that none of
# the first ones can serve counts as a mistake.
_JOIN_SECS = 10.0


async def wait(
  entry: cell_state.Published,
  members: members_lib.Members,
  replicas: int,
  check_leads: Callable[[], None],
) -> None:
  """Returns when so many servers have loaded a model.

  Args:
    entry: the model.
    members: the model servers.
    replicas: how many of them must have loaded it.
    check_leads: raises if another admin server leads by now.

  Raises:
    Cancelled: the model was unpublished meanwhile.
    FailedPrecondition: its loading failed, or no server can serve its path,
      and nothing is under way that would change that.
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
          f'model {entry.model.model_id} cannot be loaded: {unknown}; unpublish'
          ' it, then publish it with the right path'
        )
    try:
      async with asyncio.timeout(patience):
        await entry.changed.wait()
    except TimeoutError:
      pass  # The path is looked up once more.
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
    # What was not counted yet is news that this call is about to be told.
    or not all(h.counted for h in failed)
    or any(h.status == held_lib.LOADING for h in held)
    or _has_untried(entry, members)
  ):
    return
  raise errors.FailedPrecondition(
    f'model {entry.model.model_id} is loaded on {_num_loaded(entry, members)} '
    f'of {replicas} servers, and failed on: '
    + '; '.join(
      f'{address} ({failure.reason or "no reason given"})'
      for address, failure in entry.failures.items()
    )
    + '; update its checkpoint, or unpublish it and publish it anew'
  )


def _has_untried(
  entry: cell_state.Published, members: members_lib.Members
) -> bool:
  """Whether a failed model may still move to a server that is new to it."""
  return any(
    not m.held
    and entry.model.model_path in m.paths
    and not entry.failures.count(m.address)
    for m in members.all()
  )
