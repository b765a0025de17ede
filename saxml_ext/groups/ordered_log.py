"""The log of a group, and what keeps the calls of all models in its order."""

import collections
from collections.abc import Callable, Collection, Iterator, Sequence
import contextlib
import threading
import time
from typing import Any, NamedTuple

from saxml_ext.groups import followers
from saxml_ext.protobuf import group_pb2

# Seconds between two looks at how long the present call takes.
_LOOK = 0.25


class Answers:
  """The answers of a group's followers to one entry of its log."""

  def __init__(self, processes: Collection[int]):
    """Takes the numbers of those who are asked."""
    self._missing = set(processes)
    self._answers: dict[int, Any] = {}
    self._changed = threading.Condition()

  def put(self, process: int, answer: Any) -> None:
    """Notes an answer."""
    with self._changed:
      self._missing.discard(process)
      self._answers[process] = answer
      self._changed.notify_all()

  def wait(self, seconds: float) -> list[int]:
    """Waits for all; returns the numbers of those that are missing still."""
    with self._changed:
      self._changed.wait_for(lambda: not self._missing, max(0.0, seconds))
      return sorted(self._missing)

  def all(self) -> dict[int, Any]:
    """The answers so far, by number of the process."""
    with self._changed:
      return dict(self._answers)


class OrderedLog:
  """Appends entries; any thread may."""

  def __init__(self, members: Callable[[], Sequence[followers.Member]]):
    """Is empty.

    Args:
      members: Returns the followers that entries go to.
    """
    self._followers = members
    self._lock = threading.Lock()
    self._sequence = 0
    self._answers: dict[int, Answers] = {}

  def expect(self) -> Answers:
    """Answers of all followers, to an entry that is appended with them."""
    return Answers([member.host.process_id for member in self._followers()])

  def append(
    self, entry: group_pb2.Entry, answers: Answers | None = None
  ) -> int:
    """Numbers an entry and queues it for every follower; returns at once.

    Args:
      entry: without a number; a `load` gets it as its model too.
      answers: what followers answer goes here.

    Returns:
      The entry's number.
    """
    with self._lock:
      self._sequence += 1
      entry.sequence = self._sequence
      if entry.WhichOneof('call') == 'load':
        entry.model = self._sequence
      if answers:
        self._answers[self._sequence] = answers
      # Once for all of them.
      data = entry.SerializeToString()
      for member in self._followers():
        member.send(data)
    return entry.sequence

  def answered(self, process: int, answer: group_pb2.Answer) -> None:
    """Takes a follower's answer to an entry; others are passed over."""
    kind = answer.WhichOneof('kind')
    if kind == 'done':
      number = answer.done
    elif kind == 'identity':
      number = answer.identity.load
    elif kind == 'failure':
      number = answer.failure.load
    else:
      return
    with self._lock:
      answers = self._answers.get(number)
    if answers:
      answers.put(process, answer)

  def forget(self, answers: Answers) -> None:
    """Expects no more of these answers."""
    with self._lock:
      self._answers = {
        number: each
        for number, each in self._answers.items()
        if each is not answers
      }


class FairLock:
  """Mutual exclusion, first come, first served.

  A thread that gives a `threading.Lock` back and asks for it again at once
  mostly gets it, so that of two models that decode one could starve.
  """

  def __init__(self) -> None:
    self._guard = threading.Lock()
    self._held = False
    self._waiting: collections.deque[threading.Lock] = collections.deque()

  def __enter__(self) -> None:
    with self._guard:
      if not self._held:
        self._held = True
        return
      turn = threading.Lock()
      turn.acquire()
      self._waiting.append(turn)
    turn.acquire()

  def __exit__(self, *unused) -> None:
    with self._guard:
      if self._waiting:
        self._waiting.popleft().release()  # It stays held, by the next one.
      else:
        self._held = False


class Call(NamedTuple):
  """A call that is under way.

  Attributes:
    sequence: number of its entry in the log.
    what: it is, in a few words.
    begin: when it began, monotonic seconds.
    limit: seconds that it may take.
  """

  sequence: int
  what: str
  begin: float
  limit: float


class Stopwatch:
  """Watches one call at a time, from a thread of its own."""

  def __init__(self, on_late: Callable[[Call], None]):
    """Does nothing before `start`.

    Args:
      on_late: called once, with the first call that takes too long.
    """
    self._on_late = on_late
    self._call: Call | None = None

  def start(self) -> None:
    """Begins to watch."""
    threading.Thread(target=self._watch, daemon=True).start()

  @contextlib.contextmanager
  def timing(self, sequence: int, what: str, limit: float) -> Iterator[None]:
    """Watches a call while the context lasts; see `Call`."""
    self._call = Call(sequence, what, time.monotonic(), limit)
    try:
      yield
    finally:
      self._call = None

  def _watch(self) -> None:
    while True:
      time.sleep(_LOOK)
      call = self._call
      if call and time.monotonic() > call.begin + call.limit:
        self._on_late(call)
        return
