"""The admin server's view of models on model servers, and of failed loads."""

import dataclasses
import time

import grpc

from saxml_ext.common import backoff
from saxml_ext.protobuf import admin_pb2
from saxml_ext.protobuf import common_pb2
from saxml_ext.protobuf import modelet_pb2

LOADING = common_pb2.ModelStatus.LOADING
LOADED = common_pb2.ModelStatus.LOADED
FAILED = common_pb2.ModelStatus.FAILED

# These are the pauses between attempts to load that failed or did not reach the
# server.
_BACKOFF = backoff.Backoff(first=1.0, growth=2.0, most=60.0)


@dataclasses.dataclass
class Held:
  """A model that a server holds or will hold.

  Attributes:
    model: The model as it was published last.
    sent: The model as the server has it; None if that is uncertain.
    commanded: True if the server got a command to load it, or already had it.
    status: The status: LOADING, LOADED or FAILED.
    reason: The reason why its last load or update failed, or the progress of
      its load; '' if it succeeded.
    methods: The data methods that it serves, once known.
    reported: True if the server has reported it since its last load.
    pending: The number of commands that are queued or running.
    settled: The time at which the last command ended, in monotonic seconds.
    attempts: The number of loads in a row that did not reach the server.
    counted: True if its failure was counted.
    call: The load or update in flight, if there is one.
  """

  model: admin_pb2.Model
  sent: admin_pb2.Model | None = None
  commanded: bool = False
  status: common_pb2.ModelStatus = LOADING
  reason: str = ''
  methods: frozenset[str] = frozenset()
  reported: bool = False
  pending: int = 0
  settled: float = 0.0
  attempts: int = 0
  counted: bool = False
  call: grpc.aio.Call | None = None

  def may_retry(self, now: float) -> bool:
    """Returns True if the pause after the last failed attempt is over."""
    if not self.attempts:
      return True
    return now >= self.settled + _BACKOFF.pause(self.attempts)

  def note(self, info: modelet_pb2.GetStatusResponse.ModelWithStatus) -> None:
    """Copies the server's report of the model."""
    self.reported = True
    if self.status == LOADING:
      self.reason = ''  # The progress of the load is outdated.
    self.status = (
      info.model_status if info.model_status in (LOADED, FAILED) else LOADING
    )
    self.reason = info.failure_reason or self.reason
    methods = frozenset(s.method for s in info.method_stats)
    self.methods = methods or self.methods
    if self.status == LOADED:
      self.attempts = 0

  def note_progress(
    self, info: modelet_pb2.GetStatusResponse.ModelWithStatus
  ) -> None:
    """Copies the progress of a load that has not ended."""
    if self.status == LOADING and info.model_status == LOADING:
      self.reason = info.failure_reason


def same_load(a: admin_pb2.Model | None, b: admin_pb2.Model | None) -> bool:
  """Returns True if a server with one of the models need not load the other."""
  return (
    a is not None
    and b is not None
    and a.uuid == b.uuid
    and a.checkpoint_path == b.checkpoint_path
    and a.overrides == b.overrides
  )


@dataclasses.dataclass
class Failure:
  """The failures of a model on one server.

  Attributes:
    reason: The reason of the last failure.
    count: The number of failures in a row.
  """

  reason: str
  count: int = 1


class Failures:
  """The failures of a model on all servers since its last change."""

  def __init__(self):
    self._by_address: dict[str, Failure] = {}
    self._last = 0.0

  def follow(self, address: str, held: Held) -> None:
    """Records the status of a model on a server, and each failure once."""
    if held.status == LOADED:
      self.forget(address)
    elif held.status == FAILED and held.counted:
      self.explain(address, held.reason)
    elif held.status == FAILED:
      self.add(address, held.reason)
    held.counted = held.status == FAILED

  def add(self, address: str, reason: str) -> None:
    """Records that a load failed now."""
    self._last = time.monotonic()
    if known := self._by_address.get(address):
      known.reason = reason
      known.count += 1
    else:
      self._by_address[address] = Failure(reason)

  def explain(self, address: str, reason: str) -> None:
    """Adds the reason of a failure that was recorded without one."""
    self._by_address[address].reason = reason

  def forget(self, address: str) -> None:
    """Removes the failures on a server that has loaded the model or is gone."""
    self._by_address.pop(address, None)

  def clear(self) -> None:
    """Removes all failures, because the model was changed."""
    self._by_address.clear()

  def count(self, address: str) -> int:
    """Returns the number of failures in a row on a server."""
    known = self._by_address.get(address)
    return known.count if known else 0

  def items(self) -> list[tuple[str, Failure]]:
    """Returns the failures by address, sorted."""
    return sorted(self._by_address.items())

  def wait(self) -> float:
    """Returns the number of seconds until the next attempt; 0 for now."""
    if not self._by_address:
      return 0.0
    total = sum(f.count for f in self._by_address.values())
    until = self._last + _BACKOFF.pause(total)
    return max(0.0, until - time.monotonic())
