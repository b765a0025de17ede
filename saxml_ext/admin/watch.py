"""The address log of one published model, as WatchLoc tells it to clients.

A client asks "what changed since sequence number n" and long-polls. The log
keeps the newest mutations and folds older ones into a base set, so that it
never grows much beyond the set it describes. This module is pure: it neither
blocks nor locks, its owner does (here one asyncio event loop).
"""

from collections.abc import Iterable
import dataclasses


@dataclasses.dataclass(frozen=True)
class Mutation:
  """One address that was added to, or removed from, a model's list."""

  address: str
  added: bool


@dataclasses.dataclass(frozen=True)
class Delta:
  """The answer to one question.

  Attributes:
    next_seqno: what to ask for next time.
    full: whether the client must forget what it knows and start from `values`.
    values: the base set, sorted; only with `full`.
    changes: mutations to apply, oldest first; after `values` when `full`.
  """

  next_seqno: int
  full: bool = False
  values: tuple[str, ...] = ()
  changes: tuple[Mutation, ...] = ()


# Tells a client that the model is gone: an empty list, starting over at 0.
CLOSED = Delta(next_seqno=0, full=True)


class AddressLog:
  """A set of addresses that remembers how it recently came about."""

  def __init__(self):
    self._base: set[str] = set()
    self._log: list[Mutation] = []
    self._first = 0  # Sequence number of self._log[0].
    self._closed = False

  @property
  def next_seqno(self) -> int:
    """The sequence number that the next mutation will get."""
    return self._first + len(self._log)

  @property
  def addresses(self) -> frozenset[str]:
    """The set as it is now."""
    return frozenset(_applied(self._base, self._log))

  def add(self, address: str) -> None:
    """Appends an addition, also of an address that is already there."""
    self._append(Mutation(address, added=True))

  def remove(self, address: str) -> None:
    """Appends a removal."""
    self._append(Mutation(address, added=False))

  def close(self) -> None:
    """Ends the log: from now on every reader is told to start over."""
    self._closed = True

  def read(self, seqno: int) -> Delta | None:
    """Says what happened from `seqno` on; None when nothing has yet.

    Args:
      seqno: the first sequence number that the client has not seen, >= 0. One
        beyond the end (a client of an earlier log) is answered at once with
        the true end and no changes.
    """
    if self._closed:
      return CLOSED
    end = self.next_seqno
    if seqno == end:
      return None
    if seqno > end:
      return Delta(end)
    if seqno >= self._first:
      return Delta(end, changes=tuple(self._log[seqno - self._first :]))
    return Delta(
      end,
      full=True,
      values=tuple(sorted(self._base)),
      changes=tuple(self._log),
    )

  def _append(self, mutation: Mutation) -> None:
    self._log.append(mutation)
    # Clients of any implementation may compare lists byte by byte, so the rule
    # for folding is the protocol's: half of the log once it is more than twice
    # as long as the base set.
    size = len(self._log)
    if size >= 2 and size > 2 * len(self._base):
      half = size // 2
      self._base = _applied(self._base, self._log[:half])
      self._log = self._log[half:]
      self._first += half


def _applied(base: set[str], mutations: Iterable[Mutation]) -> set[str]:
  result = set(base)
  for mutation in mutations:
    if mutation.added:
      result.add(mutation.address)
    else:
      result.discard(mutation.address)
  return result
