"""Publishes the leader's address to the processes of a group.

jax.distributed has a key-value store in process 0. The store exists for one
start of the group, and only processes of that start can read it. The leader
writes its address and the epoch, a random number, to the store. A process that
knows the epoch proves that it belongs to this start.
"""

import json
from typing import Any, NamedTuple, Protocol

from saxml_ext.common import errors

_KEY = 'saxml_ext/groups/leader'


class Store(Protocol):
  """A key-value store that all processes of a group share."""

  def set(self, key: str, value: str) -> None:
    """Writes a new key."""

  def get(self, key: str, timeout_secs: float) -> str:
    """Waits for a key and returns its value; raises TimeoutError."""


class Announcement(NamedTuple):
  """The facts that followers need to join their leader.

  Attributes:
    address: The "host:port" of the leader's log.
    epoch: The secret of this start of the group.
    name: The name of the leader's host.
  """

  address: str
  epoch: str
  name: str


class JaxStore:
  """The store of jax.distributed."""

  def __init__(self, client: Any):
    """Wraps the client of jax.distributed."""
    self._client = client

  def set(self, key: str, value: str) -> None:
    self._client.key_value_set(key, value)

  def get(self, key: str, timeout_secs: float) -> str:
    try:
      return self._client.blocking_key_value_get(key, round(1e3 * timeout_secs))
    except RuntimeError as e:
      raise TimeoutError(str(e).partition('\n')[0]) from e


def announce(store: Store, announcement: Announcement) -> None:
  """Publishes the leader's announcement to the followers."""
  store.set(_KEY, json.dumps(announcement._asdict()))


def find(store: Store, timeout_secs: float) -> Announcement:
  """Waits for the leader's announcement and returns it.

  Raises:
    errors.Unavailable: The leader does not announce itself before the timeout.
  """
  try:
    text = store.get(_KEY, timeout_secs)
  except TimeoutError as e:
    raise errors.Unavailable(
      'process 0 of the group did not announce its address within'
      f' {timeout_secs:g} s ({e}). Check its log, and restart the group.'
    ) from e
  return Announcement(**json.loads(text))
