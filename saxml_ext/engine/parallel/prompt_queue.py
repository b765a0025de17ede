"""Prompts that are to be prefilled, and wait for others to be prefilled with.

Where parts of the slots prefill prompts of their own, a batch takes as long
with one prompt as with one of each part. Slots become free one by one, now in
this part and now in that. So a prompt waits a few decode steps for prompts of
the other parts, of the same bucket: by the estimates of docs/programs_tpu.md two
parts serve a fifth more for it, and four parts four tenths more.
"""

from collections.abc import Mapping
import dataclasses
from typing import Generic, TypeVar

from saxml_ext.engine.attention import slot_parts

# Decode steps: by the same estimates 2 to 8 do equally well, and more do worse.
_PATIENCE = 4

Request = TypeVar('Request')


@dataclasses.dataclass
class _Waiting(Generic[Request]):
  """Prompts of a bucket: by slot, and when their patience ends."""

  requests: dict[int, Request]
  due: int


class PromptQueue(Generic[Request]):
  """Prompts by bucket, in order of arrival. Time is counted in decode steps."""

  def __init__(self, batches: slot_parts.Batches):
    """`batches`: how prompts become batches."""
    self._batches = batches
    self._waiting: dict[int, _Waiting[Request]] = {}

  def __len__(self) -> int:
    return len(self.slots)

  @property
  def slots(self) -> frozenset[int]:
    """Whose prompts wait."""
    return frozenset(s for w in self._waiting.values() for s in w.requests)

  def add(self, bucket: int, requests: Mapping[int, Request], now: int) -> None:
    """Adds the prompts of some slots, none of which waits already."""
    waiting = self._waiting.setdefault(bucket, _Waiting({}, now + _PATIENCE))
    waiting.requests.update(requests)

  def discard(self, slot: int) -> None:
    """Forgets the prompt of a slot, if it waits."""
    for waiting in self._waiting.values():
      waiting.requests.pop(slot, None)
    self._drop_empty()

  def take(self, now: int, hurry: bool) -> list[tuple[int, dict[int, Request]]]:
    """Removes what is to be prefilled now: batches, each with its bucket.

    Args:
      now: steps decoded so far.
      hurry: nothing else is to be done: take all.
    """
    taken = []
    for bucket, waiting in self._waiting.items():
      late = hurry or now >= waiting.due
      for batch in self._batches.of(list(waiting.requests)):
        if late or self._batches.is_full(batch):
          requests = {slot: waiting.requests.pop(slot) for slot in batch}
          taken.append((bucket, requests))
          waiting.due = now + _PATIENCE
    self._drop_empty()
    return taken

  def _drop_empty(self) -> None:
    self._waiting = {b: w for b, w in self._waiting.items() if w.requests}
