"""A group whose processes are threads of a test."""

from collections.abc import Sequence
import queue
import threading

from saxml_ext.groups import follower as follower_lib
from saxml_ext.groups import group_engine
from saxml_ext.groups import leader as leader_lib
from saxml_ext.groups import leader_address

_TIMEOUT = 300.0
LIMITS = group_engine.Limits(silence=30.0, step=300.0, load=300.0, join=300.0)


class LocalGroup:
  """A leader and its followers.

  Attributes:
    leader: Process 0.
    followers: The other processes.
    threads: The threads of the followers.
    ends: A queue of the (process, reason) pairs of processes that ended the
      group.
    stopping: A queue of the hosts that were asked to stop.
  """

  def __init__(
    self,
    prepares: Sequence[group_engine.PrepareFn],
    limits: group_engine.Limits = LIMITS,
  ):
    """Starts the group; `prepares` has one function for each process."""
    self.ends: queue.Queue[tuple[int, str]] = queue.Queue()
    self.stopping: queue.Queue[group_engine.Host] = queue.Queue()
    self._limits = limits
    self.leader = leader_lib.Leader(
      'a',
      len(prepares),
      limits,
      prepares[0],
      on_end=lambda reason: self.ends.put((0, reason)),
      on_stopping=self.stopping.put,
    )
    address = self.leader.listen('127.0.0.1', 0)
    self.announcement = leader_address.Announcement(
      address, self.leader.epoch, 'a'
    )
    self.joined: queue.Queue[int] = queue.Queue()
    self.followers = [
      self.follower(i, prepare) for i, prepare in enumerate(prepares) if i
    ]
    self.threads = [
      threading.Thread(target=follower.run, daemon=True)
      for follower in self.followers
    ]
    for thread in self.threads:
      thread.start()
    self.hosts = self.leader.wait_for_followers()

  def follower(
    self,
    number: int,
    prepare: group_engine.PrepareFn,
    announcement: leader_address.Announcement | None = None,
  ) -> follower_lib.Follower:
    """Returns a follower that has not joined yet."""
    return follower_lib.Follower(
      announcement or self.announcement,
      group_engine.Host('abcdefgh'[number], number),
      self._limits,
      prepare,
      on_joined=lambda: self.joined.put(number),
      on_end=lambda ended: self.ends.put((number, ended.reason)),
    )

  def close(self) -> None:
    """Ends all threads that can be ended."""
    self.leader.tell_end('the test is over')

  def next_end(self) -> tuple[int, str]:
    """Waits for a process that ends the group; returns (process, reason)."""
    return self.ends.get(timeout=_TIMEOUT)
