"""The log of a group, and the lock and timer of the calls in the log."""

import collections
from collections.abc import Callable, Collection, Iterator, Sequence
import contextlib
import threading
import time
from typing import Any, NamedTuple

from saxml_ext.groups import followers
from saxml_ext.protobuf import group_pb2

# The seconds between checks of the current call's elapsed time.
_LOOK = 0.25


class Answers:
  """The answers of a group's followers to one entry of its log."""

  def __init__(self, processes: Collection[int]):
    """Stores the numbers of the processes that must answer."""
    self._missing = set(processes)
    self._answers: dict[int, Any] = {}
    self._changed = threading.Condition()

  def put(self, process: int, answer: Any) -> None:
    """Stores the answer of a process."""
    with self._changed:
      self._missing.discard(process)
      self._answers[process] = answer
      self._changed.notify_all()

  def wait(self, seconds: float) -> list[int]:
    """Waits for all answers; returns the processes that did not answer."""
    with self._changed:
      self._changed.wait_for(lambda: not self._missing, max(0.0, seconds))
      return sorted(self._missing)

  def all(self) -> dict[int, Any]:
    """Returns the received answers by process number."""
    with self._changed:
      return dict(self._answers)


class OrderedLog:
  """A log of entries; any thread may append to it."""

  def __init__(self, members: Callable[[], Sequence[followers.Member]]):
    """Creates an empty log.

    Args:
      members: A function that returns the followers to send entries to.
    """
    self._followers = members
    self._lock = threading.Lock()
    self._sequence = 0
    self._answers: dict[int, Answers] = {}

  def expect(self) -> Answers:
    """Returns an object that collects all followers' answers to an entry."""
    return Answers([member.host.process_id for member in self._followers()])

  def append(
    self, entry: group_pb2.Entry, answers: Answers | None = None
  ) -> int:
    """Numbers an entry and queues it for every follower; returns at once.

    Args:
      entry: The entry without a number. In a `load` entry, the number is also
        stored as the model.
      answers: The object that collects the followers' answers.

    Returns:
      The number of the entry.
    """
    with self._lock:
      self._sequence += 1
      entry.sequence = self._sequence
      if entry.WhichOneof('call') == 'load':
        entry.model = self._sequence
      if answers:
        self._answers[self._sequence] = answers
      # The entry is serialized once for all followers.
      data = entry.SerializeToString()
      for member in self._followers():
        member.send(data)
    return entry.sequence

  def answered(self, process: int, answer: group_pb2.Answer) -> None:
    """Stores a follower's answer to an entry; ignores other messages."""
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
    """Stops collecting these answers."""
    with self._lock:
      self._answers = {
        number: open_answers
        for number, open_answers in self._answers.items()
        if open_answers is not answers
      }


class FairLock:
  """A lock that threads get in the order in which they ask for it.

  A thread that releases a `threading.Lock` and acquires it again at once
  usually gets it. If two models decode, one of them could then starve.
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
        self._waiting.popleft().release()  # The next thread holds it now.
      else:
        self._held = False


class Call(NamedTuple):
  """A call in progress.

  Attributes:
    sequence: The number of its entry in the log.
    what: A short name of the call.
    begin: The time at which it began, in monotonic seconds.
    limit: The timeout in seconds.
  """

  sequence: int
  what: str
  begin: float
  limit: float


class Stopwatch:
  """Detects a call that exceeds its timeout, from a separate thread."""

  def __init__(self, on_late: Callable[[Call], None]):
    """Creates a stopwatch that does not run yet; see `start`.

    Args:
      on_late: A function that is called once, with the first call that exceeds
        its timeout.
    """
    self._on_late = on_late
    self._call: Call | None = None

  def start(self) -> None:
    """Starts the thread of the stopwatch."""
    threading.Thread(target=self._watch, daemon=True).start()

  @contextlib.contextmanager
  def timing(self, sequence: int, what: str, limit: float) -> Iterator[None]:
    """Measures a call during the context; see `Call` for the arguments."""
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
