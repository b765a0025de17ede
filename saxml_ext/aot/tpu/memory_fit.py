"""Whether a program set fits the memory of the devices that it is for.

XLA refuses a program that is too large by itself. A server needs more: while
one program runs, the weights, the state of all slots and the code of every
program stay where they are.
"""

from collections.abc import Mapping
import dataclasses

from saxml_ext.aot import manifest as manifest_lib
from saxml_ext.common import errors

# The program that makes the state, see `executables.EmptyState`.
_EMPTY_STATE = 'empty_state'


@dataclasses.dataclass(frozen=True)
class Needs:
  """Bytes of memory on each device.

  Attributes:
    resident: weights and state, which every program leaves in place.
    code: of all programs, which stay loaded.
    by_program: the most that the device holds while a program runs, all of
      this included.
    limit: what XLA lets programs use.
  """

  resident: int
  code: int
  by_program: Mapping[str, int]
  limit: int

  @property
  def worst(self) -> str:
    """Key of the program that needs most."""
    return max(self.by_program, key=lambda key: self.by_program[key])

  @property
  def missing(self) -> int:
    """By how much the devices are too small; 0: everything fits."""
    return max(0, self.by_program[self.worst] - self.limit)


def needs(
  memory: Mapping[str, manifest_lib.Memory], resident: int, limit: int
) -> Needs:
  """What a server of all these programs needs on each device.

  Args:
    memory: of every program, by key. XLA's peak holds a program's arguments and
      results; whatever else is resident is added here.
    resident: weights and state, see `resident_bytes`.
    limit: see `Needs`.
  """
  code = sum(m.code for m in memory.values())

  def of(key: str, told: manifest_lib.Memory) -> int:
    # Its results are the state itself, of which there is none before.
    made = told.outputs - told.aliased if key == _EMPTY_STATE else 0
    return resident - told.arguments - made + _alone(told) + code

  return Needs(
    resident, code, {key: of(key, m) for key, m in memory.items()}, limit
  )


def _alone(told: manifest_lib.Memory) -> int:
  """The most that a program holds without its code.

  XLA's peak is the most that is in use at a time. The temporaries are one piece
  of memory, which is taken as a whole, so the sum of the parts may be more.
  """
  parts = told.arguments + told.temporaries + told.outputs - told.aliased
  return max(told.peak, parts)


def resident_bytes(memory: Mapping[str, manifest_lib.Memory]) -> int:
  """Bytes of weights and state, as the devices lay them out.

  They are the arguments of a decode program, which reads all weights and all
  state; what it gets besides is a few kilobytes. Of programs without one, it is
  the most that there is evidence of.
  """
  return max(max(m.arguments, m.outputs - m.aliased) for m in memory.values())


def check(memory: Mapping[str, manifest_lib.Memory], limit: int) -> Needs:
  """What a server of all these programs needs on each device, if it fits.

  Args:
    memory: of every program, by key.
    limit: bytes of a device that XLA lets programs use.

  Raises:
    errors.ResourceExhausted: it does not fit.
  """
  found = needs(memory, resident_bytes(memory), limit)
  if not found.missing:
    return found
  raise errors.ResourceExhausted(
    f'{found.worst!r} needs {_gib(found.by_program[found.worst])} of a'
    f" device's memory, {_gib(found.missing)} more than the"
    f' {_gib(found.limit)} that XLA lets programs use: {_gib(found.resident)}'
    f' are weights and state, {_gib(found.code)} the code of all programs;'
    ' lower NUM_CACHE_SLOTS, choose KV_CACHE_DTYPE="int8" or a larger topology'
  )


def _gib(size: int) -> str:
  return f'{size / 2**30:.2f} GiB'
