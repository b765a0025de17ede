"""Summarizes a program set for TPU, and checks that it fits the devices.

XLA refuses a program that is too large by itself. A server needs more: while
one program runs, the weights, the state of all slots and the code of every
program stay where they are.
"""

import collections
from collections.abc import Mapping
import dataclasses
import re

from saxml_ext.aot import manifest as manifest_lib
from saxml_ext.aot.tpu import topologies
from saxml_ext.common import errors

NAME = 'summary.txt'

# The program that makes the state, see `executables.EmptyState`.
_EMPTY_STATE = 'empty_state'
_COLLECTIVE = re.compile(
  r' = .*? (all-reduce|all-gather|reduce-scatter|all-to-all|'
  r'collective-permute)(?:-start)?\('
)
_COLUMNS = ('peak', 'args', 'temp', 'out', 'alias', 'code', 'needs')


@dataclasses.dataclass(frozen=True)
class Needs:
  """Bytes of memory on each device.

  Attributes:
    resident: The weights and the state, which every program leaves in place.
    code: The code of all programs, which stay loaded.
    by_program: The most that the device holds while a program runs, all of this
      included.
    limit: The memory that XLA lets programs use.
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
  def left(self) -> int:
    """Bytes that are free beside the worst program; negative: none fits."""
    return self.limit - self.by_program[self.worst]


def needs(
  memory: Mapping[str, manifest_lib.Memory], resident: int, limit: int
) -> Needs:
  """Returns what a server of all these programs needs on each device.

  Args:
    memory: The memory of every program, by key. XLA's peak holds a program's
      arguments and results; whatever else is resident is added here.
    resident: The weights and the state, see `resident_bytes`.
    limit: The limit of `Needs`.
  """
  code = sum(m.code for m in memory.values())

  def of(key: str, m: manifest_lib.Memory) -> int:
    made = m.outputs - m.aliased
    # XLA's peak is the most that is in use at a time. The temporaries are one
    # piece of memory, which is taken as a whole, so the parts may be more.
    alone = max(m.peak, m.arguments + m.temporaries + made)
    # Its results are the state itself, of which there is none before.
    new = made if key == _EMPTY_STATE else 0
    return resident - m.arguments - new + alone + code

  by_program = {key: of(key, m) for key, m in memory.items()}
  return Needs(resident, code, by_program, limit)


def resident_bytes(memory: Mapping[str, manifest_lib.Memory]) -> int:
  """Returns the bytes of weights and state, as the devices lay them out.

  They are the arguments of a decode program, which reads all weights and all
  state; its other arguments are a few kilobytes. Without such a program, it is
  the most that there is evidence of.
  """
  return max(max(m.arguments, m.outputs - m.aliased) for m in memory.values())


def check(memory: Mapping[str, manifest_lib.Memory], limit: int) -> Needs:
  """Returns what a server of all these programs needs on each device.

  Args:
    memory: The memory of every program, by key.
    limit: The bytes of a device that XLA lets programs use.

  Raises:
    errors.ResourceExhausted: It does not fit.
  """
  found = needs(memory, resident_bytes(memory), limit)
  if found.left >= 0:
    return found
  worst, missing, most, resident, code = (
    f'{size / 2**30:.2f} GiB'
    for size in (
      *(found.by_program[found.worst], -found.left, limit),
      *(found.resident, found.code),
    )
  )
  raise errors.ResourceExhausted(
    f"{found.worst!r} needs {worst} of a device's memory, {missing} more than"
    f' the {most} that XLA lets programs use: {resident} are weights and state,'
    f' {code} the code of all programs; lower NUM_CACHE_SLOTS, choose'
    ' KV_CACHE_DTYPE="int8" or a larger topology'
  )


def text(
  manifest: manifest_lib.Manifest,
  topology: topologies.Topology,
  needs: Needs,
  hlo: Mapping[str, str],
) -> str:
  """Returns the summary of a set. It has no times, which no two builds share.

  Args:
    manifest: The manifest of the set.
    topology: The topology that it is for.
    needs: The needs of the set.
    hlo: The optimized HLO of each program, by key.
  """
  c = manifest.configuration
  engine = c.engine
  overrides = ''.join(f' {k}={v}' for k, v in c.serving.overrides.items())
  # The runtime describes itself in several lines.
  versions = [f'{k} {" ".join(v.split())}' for k, v in c.versions.items()]
  worst = needs.by_program[needs.worst]
  return '\n'.join(
    [
      f'{c.serving.model_path}{overrides}',
      f'for {topology.name}: {topology.chips} chips, {topology.devices} devices'
      f' of {topology.chip.kind!r}, mesh {list(c.mesh)} [replica, data, model]',
      f'{engine.num_slots} slots of {engine.rows} rows, prompts to'
      f' {engine.max_prompt} tokens and {engine.max_new_tokens} new ones, KV in'
      f' {engine.kv_dtype}',
      ', '.join(versions),
      f'XLA flags: {len(manifest.xla_flags)}',
      '',
      'GiB on each device; "needs" counts everything that is in memory while the'
      ' program runs.',
      _row('program', _COLUMNS, 'MB', 'collectives in the program'),
      *(_program(p, needs, hlo[p.key]) for p in manifest.programs),
      '',
      f'weights and state {_gib(needs.resident)} GiB, code of all programs'
      f' {_gib(needs.code)} GiB',
      f'{needs.worst!r} needs most: {_gib(worst)} of the {_gib(needs.limit)} GiB'
      f' that XLA lets programs use; {_gib(needs.left)} GiB are left',
      '',
    ]
  )


def _program(program: manifest_lib.Program, needs: Needs, hlo: str) -> str:
  """Returns the row of a program.

  A collective in the body of a loop, such as that over the layers, counts once.
  """
  m = program.memory
  sizes = (
    *(m.peak, m.arguments, m.temporaries, m.outputs, m.aliased, m.code),
    needs.by_program[program.key],
  )
  megabytes = program.files[manifest_lib.EXECUTABLE].bytes / 1e6
  counts = collections.Counter(_COLLECTIVE.findall(hlo))
  collectives = ', '.join(f'{n} {kind}' for kind, n in sorted(counts.items()))
  return _row(program.key, map(_gib, sizes), f'{megabytes:.1f}', collectives)


def _row(name: str, sizes, megabytes: str, counts: str) -> str:
  columns = ' '.join(f'{size:>7}' for size in sizes)
  return f'{name:28} {columns} {megabytes:>6}  {counts}'.rstrip()


def _gib(size: int) -> str:
  return f'{size / 2**30:.3f}'
