"""Models on model servers, as the admin server knows them, and failed loads."""

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

# Between attempts to load that failed, or did not get through.
_BACKOFF = backoff.Backoff(first=1.0, growth=2.0, most=60.0)


@dataclasses.dataclass
class Held:
  """A model that a server holds or is about to hold.

  Attributes:
    model: as published last.
    sent: as the server has it, None while that is not certain.
    told: Whether the server was told to load it, or had it already.
    status: LOADING, LOADED or FAILED.
    reason: why its last load or update failed, empty if it did not.
    methods: the data methods it serves, once known.
    reported: whether the server has told of it since it was last loaded.
    pending: actions queued or running.
    settled: when the last action ended, monotonic seconds.
    attempts: loads in a row that did not get through.
    counted: whether its failure was counted.
    call: the load or update that is under way, if one is.
  """

  model: admin_pb2.Model
  sent: admin_pb2.Model | None = None
  told: bool = False
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
    """Whether the pause after the last failed attempt is over."""
    if not self.attempts:
      return True
    return now >= self.settled + _BACKOFF.pause(self.attempts)

  def note(self, info: modelet_pb2.GetStatusResponse.ModelWithStatus) -> None:
    """Takes over what the server says of the model."""
    self.reported = True
    self.status = (
      info.model_status if info.model_status in (LOADED, FAILED) else LOADING
    )
    self.reason = info.failure_reason or self.reason
    methods = frozenset(s.method for s in info.method_stats)
    self.methods = methods or self.methods
    if self.status == LOADED:
      self.attempts = 0


def same_load(a: admin_pb2.Model | None, b: admin_pb2.Model | None) -> bool:
  """Whether a server that loaded one need not load the other as well."""
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

  def follow(self, address: str, held: Held) -> None:
    """Notes how a model fares on a server, each failure once."""
    if held.status == LOADED:
      self.forget(address)
    elif held.status == FAILED and held.counted:
      self.explain(address, held.reason)
    elif held.status == FAILED:
      self.add(address, held.reason)
    held.counted = held.status == FAILED

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
    """Returns how often in a row it failed on a server."""
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
