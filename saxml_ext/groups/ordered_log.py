"""The log of a group: numbered entries, sent to every follower, and answered."""

from collections.abc import Callable, Sequence
import threading

from saxml_ext.groups import followers as members_lib
from saxml_ext.groups.waiting import follower_answers as answers_lib
from saxml_ext.protobuf import group_pb2


class OrderedLog:
  """Appends entries; any thread may."""

  def __init__(self, followers: Callable[[], Sequence[members_lib.Member]]):
    """Is empty.

    Args:
      followers: all that entries go to.
    """
    self._followers = followers
    self._lock = threading.Lock()
    self._sequence = 0
    self._answers: dict[int, answers_lib.Answers] = {}

  def expect(self) -> answers_lib.Answers:
    """Answers of all followers, to an entry that is appended with them."""
    return answers_lib.Answers(
      [member.host.process_id for member in self._followers()]
    )

  def append(
    self, entry: group_pb2.Entry, answers: answers_lib.Answers | None = None
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

  def forget(self, answers: answers_lib.Answers) -> None:
    """Expects no more of these answers."""
    with self._lock:
      self._answers = {
        number: each
        for number, each in self._answers.items()
        if each is not answers
      }
