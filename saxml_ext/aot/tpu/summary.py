"""Summarizes a program set for TPU, and checks that it fits the devices.

XLA rejects a single program that is too large. A server needs more memory.
While one program runs, the weights, the state of all slots and the code of
every program also stay in memory.
"""

import collections
from collections.abc import Mapping
import dataclasses
import re

from saxml_ext.aot import manifest as manifest_lib
from saxml_ext.aot.tpu import topologies
from saxml_ext.common import errors

NAME = 'summary.txt'

# The program that creates the state, see `program_keys.EmptyState`.
_EMPTY_STATE = 'empty_state'
_COLLECTIVE = re.compile(
  r' = .*? (all-reduce|all-gather|reduce-scatter|all-to-all|'
  r'collective-permute)(?:-start)?\('
)
_COLUMNS = ('peak', 'args', 'temp', 'out', 'alias', 'code', 'needs')


@dataclasses.dataclass(frozen=True)
class Needs:
  """The memory that a server needs on each device, in bytes.

  Attributes:
    resident: The size of the weights and the state, which stay in memory.
    code: The size of the code of all programs, which stay loaded.
    by_program: The peak memory of the device while a program runs, including
      the values above, by key.
    limit: The memory that XLA lets programs use.
  """

  resident: int
  code: int
  by_program: Mapping[str, int]
  limit: int

  @property
  def worst(self) -> str:
    """The key of the program that needs the most memory."""
    return max(self.by_program, key=lambda key: self.by_program[key])

  @property
  def left(self) -> int:
    """The free bytes with the largest program; negative if it does not fit."""
    return self.limit - self.by_program[self.worst]


def needs(
  memory: Mapping[str, manifest_lib.Memory], resident: int, limit: int
) -> Needs:
  """Returns the memory that a server of all these programs needs per device.

  Args:
    memory: The memory of every program, by key. XLA's peak includes a program's
      arguments and results. The function adds all other resident memory.
    resident: The size of the weights and the state, see `resident_bytes`.
    limit: The memory that XLA lets programs use.
  """
  code = sum(m.code for m in memory.values())

  def peak(key: str, m: manifest_lib.Memory) -> int:
    made = m.outputs - m.aliased
    # XLA's peak is the maximum memory in use at a time. The temporaries are
    # allocated as one block, so the sum of the parts may be larger.
    alone = max(m.peak, m.arguments + m.temporaries + made)
    # The results of this program are the state, which does not exist before.
    new = made if key == _EMPTY_STATE else 0
    return resident - m.arguments - new + alone + code

  by_program = {key: peak(key, m) for key, m in memory.items()}
  return Needs(resident, code, by_program, limit)


def resident_bytes(memory: Mapping[str, manifest_lib.Memory]) -> int:
  """Returns the bytes of weights and state in the devices' layout.

  A decode program has all weights and all state as arguments. Its other
  arguments are a few kilobytes. Without a decode program, the result is a lower
  bound.
  """
  return max(max(m.arguments, m.outputs - m.aliased) for m in memory.values())


def check(memory: Mapping[str, manifest_lib.Memory], limit: int) -> Needs:
  """Returns the memory that a server of all these programs needs per device.

  Args:
    memory: The memory of every program, by key.
    limit: The bytes of a device that XLA lets programs use.

  Raises:
    errors.ResourceExhausted: The programs do not fit in this memory.
  """
  result = needs(memory, resident_bytes(memory), limit)
  if result.left >= 0:
    return result
  worst, missing, most, resident, code = (
    f'{size / 2**30:.2f} GiB'
    for size in (
      *(result.by_program[result.worst], -result.left, limit),
      *(result.resident, result.code),
    )
  )
  raise errors.ResourceExhausted(
    f"{result.worst!r} needs {worst} of a device's memory, {missing} more than"
    f' the {most} that XLA lets programs use. Weights and state need'
    f' {resident}, and the code of all programs {code}. Lower NUM_CACHE_SLOTS,'
    ' choose KV_CACHE_DTYPE="int8" or a larger topology.'
  )


def text(
  manifest: manifest_lib.Manifest,
  topology: topologies.Topology,
  needs: Needs,
  hlo: Mapping[str, str],
) -> str:
  """Returns the summary of a set, without times so that it is reproducible.

  Args:
    manifest: The manifest of the set.
    topology: The target topology.
    needs: The memory that the set needs.
    hlo: The optimized HLO of each program, by key.
  """
  c = manifest.configuration
  engine = c.engine
  overrides = ''.join(f' {k}={v}' for k, v in c.serving.overrides.items())
  # The runtime's version has several lines.
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
      'GiB on each device; "needs" counts everything that is in memory while'
      ' the program runs.',
      _row('program', _COLUMNS, 'MB', 'collectives in the program'),
      *(_program(p, needs, hlo[p.key]) for p in manifest.programs),
      '',
      f'weights and state {_gib(needs.resident)} GiB, code of all programs'
      f' {_gib(needs.code)} GiB',
      f'{needs.worst!r} needs most: {_gib(worst)} of the {_gib(needs.limit)}'
      f' GiB that XLA lets programs use; {_gib(needs.left)} GiB are left',
      '',
    ]
  )


def _program(program: manifest_lib.Program, needs: Needs, hlo: str) -> str:
  """Returns the row of a program.

  A collective in the body of a loop, such as the loop over the layers, counts
  once.
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
