"""Where the processes of a group find their leader.

jax.distributed brings a key-value store that lives as long as one start of the
group, on process 0. What the leader writes there, only processes of that start
can read; the epoch, a random number, is how they show it.
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
    """Waits for a key; raises TimeoutError without it in time."""


class Announcement(NamedTuple):
  """What followers need of the leader.

  Attributes:
    address: "host:port" of its log.
    epoch: of this start of the group.
    name: of its host.
  """

  address: str
  epoch: str
  name: str


class JaxStore:
  """The store of jax.distributed."""

  def __init__(self, client: Any):
    """Takes jax.distributed's client."""
    self._client = client

  def set(self, key: str, value: str) -> None:
    self._client.key_value_set(key, value)

  def get(self, key: str, timeout_secs: float) -> str:
    try:
      return self._client.blocking_key_value_get(key, round(1e3 * timeout_secs))
    except RuntimeError as e:
      raise TimeoutError(str(e).partition('\n')[0]) from e


def announce(store: Store, announcement: Announcement) -> None:
  """Lets the followers know of their leader."""
  store.set(_KEY, json.dumps(announcement._asdict()))


def find(store: Store, timeout_secs: float) -> Announcement:
  """Waits for the leader.

  Raises:
    errors.Unavailable: it does not tell of itself in time.
  """
  try:
    text = store.get(_KEY, timeout_secs)
  except TimeoutError as e:
    raise errors.Unavailable(
      f'process 0 of the group did not tell its address within {timeout_secs:g}'
      f' s ({e}): look at its log, and restart the group'
    ) from e
  return Announcement(**json.loads(text))
