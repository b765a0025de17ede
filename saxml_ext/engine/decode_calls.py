"""Describes decode calls that have begun and were not read yet.

On an accelerator, a call begins before the results of the last one are read, so
that the device does not wait for the host. The host does not know yet whether
the last call ended before its last step, because slots have finished. If it
did, and if both calls have the same slots, the later call makes no step: the
condition that ended the first call still holds. So the later call may assume
that the first one makes all its steps.
"""

from collections.abc import Collection, Mapping
import dataclasses

import jax

from saxml_ext.engine import program_keys
from saxml_ext.engine import request as request_lib
from saxml_ext.engine.search import streams


@dataclasses.dataclass(frozen=True)
class Call:
  """A decode call, whose results are still on the device.

  Attributes:
    key: The program.
    requests: The requests that it decodes, by slot.
    begin: The number of steps of all calls before it.
    row: The first row of the ring's last block that it writes.
    steps: The maximum number of its steps.
    turned: True if the ring was turned before it.
    done: The number of its steps, [] int32.
    finished: The slots that have finished, [S] bool.
    progress: The progress of all slots after it; None if no other call can
      begin before this one is read, or without streams.
  """

  key: program_keys.Decode
  requests: Mapping[int, request_lib.Settled]
  begin: int
  row: int
  steps: int
  turned: bool
  done: jax.Array
  finished: jax.Array
  progress: streams.Progress | None

  def has(self, slot: int, request: request_lib.Settled | None) -> bool:
    """Returns True if it decodes a request in this slot."""
    return request is not None and self.requests.get(slot) is request

  def may_precede(
    self,
    key: program_keys.Decode,
    slots: Collection[int],
    requests: Mapping[int, request_lib.Settled],
  ) -> bool:
    """Returns True if a call may begin before this one is read.

    Args:
      key: The program of that call.
      slots: The slots that it decodes.
      requests: The requests of all occupied slots.
    """
    return (
      key == self.key
      and slots == self.requests.keys()
      and all(self.has(slot, requests[slot]) for slot in slots)
    )
