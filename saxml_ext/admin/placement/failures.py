"""Loads of one published model that failed, and when to try again."""

import dataclasses
import time

from saxml_ext.admin.modelet import held as held_lib
from saxml_ext.common import backoff

_BACKOFF = backoff.Backoff(first=1.0, growth=2.0, most=60.0)


@dataclasses.dataclass
class Failure:
  """What went wrong on one server.

  Attributes:
    reason: of the last time.
    count: times in a row.
  """

  reason: str
  count: int = 1


class Failures:
  """Failures of a model on all servers since it was published or changed."""

  def __init__(self):
    self._by_address: dict[str, Failure] = {}
    self._last = 0.0

  def follow(self, address: str, held: held_lib.Held) -> None:
    """Notes how a model fares on a server, each failure once."""
    if held.status == held_lib.LOADED:
      self.forget(address)
    elif held.status == held_lib.FAILED and held.counted:
      self.explain(address, held.reason)
    elif held.status == held_lib.FAILED:
      self.add(address, held.reason)
    held.counted = held.status == held_lib.FAILED

  def add(self, address: str, reason: str) -> None:
    """Notes that a load failed now."""
    self._last = time.monotonic()
    if known := self._by_address.get(address):
      known.reason = reason
      known.count += 1
    else:
      self._by_address[address] = Failure(reason)

  def explain(self, address: str, reason: str) -> None:
    """Gives the reason of a failure that was noted without one."""
    self._by_address[address].reason = reason

  def forget(self, address: str) -> None:
    """The model is loaded there by now, or the server is gone."""
    self._by_address.pop(address, None)

  def clear(self) -> None:
    """The model was changed: all is open again."""
    self._by_address.clear()

  def count(self, address: str) -> int:
    """How often in a row it failed on a server."""
    known = self._by_address.get(address)
    return known.count if known else 0

  def items(self) -> list[tuple[str, Failure]]:
    """Failures by address, sorted."""
    return sorted(self._by_address.items())

  def wait(self) -> float:
    """Seconds until the next attempt may be made; 0 for now."""
    if not self._by_address:
      return 0.0
    total = sum(f.count for f in self._by_address.values())
    until = self._last + _BACKOFF.pause(total)
    return max(0.0, until - time.monotonic())
