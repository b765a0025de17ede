"""Splits prefill by slots: each part of a mesh prefills its own prompts.

The devices along `replica` and `data` of the mesh hold parts of the slots; see
`logical.py`. The rows of a batch of prompts are split in the same way: the
first B / P rows go to the first of P parts. A row must belong to a slot of its
part, so that keys and values are written where they are computed. `Batches`
arranges the rows accordingly. A row without a prompt has slot S, which does not
exist, so nothing is written for it.

Every part prefills the whole batch if the batch does not divide among the
parts, or if all slots are in one part.
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
# The number of decode steps that a prompt waits. By the estimates of
# docs/programs_tpu.md, 2 to 8 perform equally well and more perform worse.
_PATIENCE = 4

Request = TypeVar('Request')


@dataclasses.dataclass(frozen=True)
class Batches:
  """The rules by which requests become batches of prompts.

  Attributes:
    num_slots: The number of slots, S.
    parts: The number of parts into which the slots are split, P.
    sizes: The possible numbers of rows of a part in a batch, ascending.
  """

  num_slots: int
  parts: int
  sizes: tuple[int, ...]

  def group(self, slots: Sequence[int]) -> list[list[int]]:
    """Returns slots to prefill, in as few batches as possible.

    Args:
      slots: The different slots, in any order. The order is kept within a part.
    """
    largest = self.sizes[-1]
    per_part = self._per_part(slots)
    return [
      [slot for own in per_part for slot in own[i : i + largest]]
      for i in range(0, max(map(len, per_part)), largest)
    ]

  def rows(self, slots: Sequence[int]) -> list[int]:
    """Returns the slot of each row of a batch, or S for a row without a prompt.

    If there is one part, a batch that is not full repeats its last slot.

    Args:
      slots: The slots of one batch, at least one.
    """
    per_part = self._per_part(slots)
    size = config_lib.at_least(max(map(len, per_part)), self.sizes)
    filler = slots[-1] if self.parts == 1 else self.num_slots
    return [
      slot for own in per_part for slot in (*own, *[filler] * (size - len(own)))
    ]

  def is_full(self, slots: Sequence[int]) -> bool:
    """Returns True if every part has at least one of these prompts."""
    return all(self._per_part(slots))

  def _per_part(self, slots: Sequence[int]) -> list[list[int]]:
    size = self.num_slots // self.parts
    return [
      [slot for slot in slots if slot // size == part]
      for part in range(self.parts)
    ]


@dataclasses.dataclass
class _Waiting(Generic[Request]):
  """The prompts of one bucket by slot, and the step that ends their wait."""

  requests: dict[int, Request]
  due: int


class PromptQueue(Generic[Request]):
  """A queue of prompts to prefill, by bucket, in order of arrival.

  If the slots are split into parts, a batch with one prompt takes as long as a
  batch with one prompt for each part. Slots become free one by one, in
  different parts. So a prompt waits a few decode steps for prompts of the same
  bucket in other parts. By the estimates of docs/programs_tpu.md, this raises
  the throughput of two parts by 20% and that of four parts by 40%.
  """

  def __init__(self, batches: Batches):
    """Creates an empty queue whose prompts are grouped by `batches`."""
    self._batches = batches
    self._waiting: dict[int, _Waiting[Request]] = {}

  def __len__(self) -> int:
    return len(self.slots)

  @property
  def slots(self) -> frozenset[int]:
    """The slots whose prompts wait."""
    return frozenset(s for w in self._waiting.values() for s in w.requests)

  def add(self, bucket: int, requests: Mapping[int, Request], now: int) -> None:
    """Adds the prompts of some slots, none of which may wait already."""
    waiting = self._waiting.setdefault(bucket, _Waiting({}, now + _PATIENCE))
    waiting.requests.update(requests)

  def discard(self, slot: int) -> None:
    """Removes the prompt of a slot if it waits."""
    for waiting in self._waiting.values():
      waiting.requests.pop(slot, None)
    self._drop_empty()

  def take(self, now: int, hurry: bool) -> list[tuple[int, dict[int, Request]]]:
    """Removes and returns the batches to prefill now, each with its bucket.

    Args:
      now: The number of steps decoded so far.
      hurry: True to take all prompts, because there is no other work.
    """
    taken = []
    for bucket, waiting in self._waiting.items():
      late = hurry or now >= waiting.due
      for batch in self._batches.group(list(waiting.requests)):
        if late or self._batches.is_full(batch):
          requests = {slot: waiting.requests.pop(slot) for slot in batch}
          taken.append((bucket, requests))
          waiting.due = now + _PATIENCE
    self._drop_empty()
    return taken

  def _drop_empty(self) -> None:
    self._waiting = {b: w for b, w in self._waiting.items() if w.requests}


def parts(rows: int) -> int:
  """Returns the number of parts into which the current mesh splits a batch."""
  count = logical.parts(_SLOTS)
  return count if rows % count == 0 else 1


def split(tree: Tree) -> Tree:
  """Returns arrays [B, ...] split among the parts if the rows divide evenly."""

  def constrain(x: jax.Array) -> jax.Array:
    if parts(x.shape[0]) == 1:
      return x
    return jax.lax.with_sharding_constraint(x, logical.spec(_SLOTS))

  return jax.tree.map(constrain, tree)


class LocalSlots(NamedTuple):
  """The slots of the rows of a batch, as seen by one part.

  Attributes:
    index: The slot, counted within the part, [b] int32.
    present: True if the part has that slot, [b] bool. None stands for True in
      each row.
  """

  index: jax.Array
  present: jax.Array | None


def on_each(
  function: Callable,
  slots: jax.Array,
  num_slots: int,
  args: Sequence[Any],
  in_specs: Sequence[Any],
  out_specs: Any,
) -> Any:
  """Returns `function(places, *args)`, computed by each part for its slots.

  Args:
    function: The function. It gets all slots and rows if the batch is not
      split.
    slots: The slot of each row, [B] int32, in the order of `Batches.rows`. It
      is S for a row without a prompt.
    num_slots: The number of slots, S.
    args: The other arguments, trees of arrays.
    in_specs: The partition specs of the other arguments.
    out_specs: The partition specs of the result.
  """
  count = parts(slots.shape[0])
  if count == 1:
    return function(LocalSlots(slots, None), *args)
  size = num_slots // count

  def local(slots, *args):
    index = slots - jax.lax.axis_index(logical.axes(_SLOTS)) * size
    present = (index >= 0) & (index < size)
    return function(LocalSlots(jnp.clip(index, 0, size - 1), present), *args)

  return jax.shard_map(
    local,
    in_specs=(logical.spec(_SLOTS), *in_specs),
    out_specs=out_specs,
    check_vma=False,
  )(slots, *args)
