"""Prefill on meshes that split the slots: each part prefills its own prompts.

Along `replica` and `data` of the mesh the devices have parts of the slots; see
`logical.py`. The rows of a batch of prompts are split among the parts likewise:
the first of B / P rows go to the first of P parts. A row must belong to a slot
of the part that it goes to, so that its keys and values are written where they
are computed; `Batches` puts rows in their places. A row without a prompt
belongs to slot S, of which there is none, and is written nowhere.

A batch that does not divide among the parts is prefilled by each of them alike,
as is everything where the slots are in one part.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
from typing import Any, Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import logical

Tree = TypeVar('Tree')

_SLOTS = 'slots'
# Decode steps: by the estimates of docs/programs_tpu.md 2 to 8 do equally well,
# and more do worse.
_PATIENCE = 4

Request = TypeVar('Request')


@dataclasses.dataclass(frozen=True)
class Batches:
  """The rules by which requests become batches of prompts.

  Attributes:
    num_slots: S.
    parts: P, into which the slots are split.
    sizes: numbers of rows that a part may have in a batch, ascending.
  """

  num_slots: int
  parts: int
  sizes: tuple[int, ...]

  def of(self, slots: Sequence[int]) -> list[list[int]]:
    """Returns slots to prefill, in as few batches as there can be.

    Args:
      slots: different ones, in any order, which is kept within a part.
    """
    largest = self.sizes[-1]
    per_part = self._per_part(slots)
    return [
      [slot for own in per_part for slot in own[i : i + largest]]
      for i in range(0, max(map(len, per_part)), largest)
    ]

  def rows(self, slots: Sequence[int]) -> list[int]:
    """Returns the slot of each row of a batch; S: the row has no prompt.

    Where there is one part, a batch that is not full repeats its last slot.

    Args:
      slots: of one batch, at least one.
    """
    per_part = self._per_part(slots)
    size = config_lib.at_least(max(map(len, per_part)), self.sizes)
    filler = slots[-1] if self.parts == 1 else self.num_slots
    return [
      slot for own in per_part for slot in (*own, *[filler] * (size - len(own)))
    ]

  def is_full(self, slots: Sequence[int]) -> bool:
    """Returns True if every part has one of these prompts to prefill."""
    return all(self._per_part(slots))

  def _per_part(self, slots: Sequence[int]) -> list[list[int]]:
    size = self.num_slots // self.parts
    return [
      [slot for slot in slots if slot // size == part]
      for part in range(self.parts)
    ]


@dataclasses.dataclass
class _Waiting(Generic[Request]):
  """Prompts of a bucket: by slot, and when their patience ends."""

  requests: dict[int, Request]
  due: int


class PromptQueue(Generic[Request]):
  """Prompts that wait to be prefilled, by bucket, in order of arrival.

  Where parts of the slots prefill prompts of their own, a batch takes as long
  with one prompt as with one of each part. Slots become free one by one, now in
  this part and now in that. So a prompt waits a few decode steps for prompts of
  the other parts, of the same bucket: by the estimates of docs/programs_tpu.md
  two parts serve a fifth more for it, and four parts four tenths more.
  """

  def __init__(self, batches: Batches):
    """Creates an empty queue for prompts that become `batches`."""
    self._batches = batches
    self._waiting: dict[int, _Waiting[Request]] = {}

  def __len__(self) -> int:
    return len(self.slots)

  @property
  def slots(self) -> frozenset[int]:
    """The slots whose prompts wait."""
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


def parts(rows: int) -> int:
  """Returns the number of parts among which the mesh in use splits a batch."""
  count = logical.parts(_SLOTS)
  return count if rows % count == 0 else 1


def split(tree: Tree) -> Tree:
  """Returns arrays [B, ...], each part with its own rows if they divide."""

  def constrain(x: jax.Array) -> jax.Array:
    if parts(x.shape[0]) == 1:
      return x
    return jax.lax.with_sharding_constraint(x, logical.spec(_SLOTS))

  return jax.tree.map(constrain, tree)


class Places(NamedTuple):
  """The slots to which the rows of a batch go, as each part sees them.

  index [b] int32: the slot, counted within the part. here [b] bool: whether it
  has that slot; None: each row has one.
  """

  index: jax.Array
  here: jax.Array | None


def on_each(
  function: Callable,
  slots: jax.Array,
  num_slots: int,
  args: Sequence[Any],
  in_specs: Sequence[Any],
  out_specs: Any,
) -> Any:
  """Returns `function(places, *args)` of each part's slots and rows.

  Args:
    function: called with the whole where the batch is not split.
    slots: [B] int32, the slot of each row, in the order of `Batches.rows`; S
      where there is none.
    num_slots: S.
    args: trees of arrays.
    in_specs: how each of them is split.
    out_specs: how the result is.
  """
  count = parts(slots.shape[0])
  if count == 1:
    return function(Places(slots, None), *args)
  size = num_slots // count

  def local(slots, *args):
    index = slots - jax.lax.axis_index(logical.axes(_SLOTS)) * size
    here = (index >= 0) & (index < size)
    return function(Places(jnp.clip(index, 0, size - 1), here), *args)

  return jax.shard_map(
    local,
    in_specs=(logical.spec(_SLOTS), *in_specs),
    out_specs=out_specs,
    check_vma=False,
  )(slots, *args)
