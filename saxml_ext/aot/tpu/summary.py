"""A program set for TPU as a page of text, for people."""

import collections
from collections.abc import Mapping
import re

from saxml_ext.aot import manifest as manifest_lib
from saxml_ext.aot.tpu import memory_fit
from saxml_ext.aot.tpu import topologies

_COLLECTIVE = re.compile(
  r' = .*? (all-reduce|all-gather|reduce-scatter|all-to-all|'
  r'collective-permute)(?:-start)?\('
)


def _count(hlo: str) -> Mapping[str, int]:
  """Kind of collective -> how often it stands in the program.

  Those in the body of a loop, such as that over the layers, stand there once.

  Args:
    hlo: text of the optimized program.
  """
  return collections.Counter(m[1] for m in _COLLECTIVE.finditer(hlo))


NAME = 'summary.txt'

_COLUMNS = ('peak', 'args', 'temp', 'out', 'alias', 'code', 'needs')


def text(
  manifest: manifest_lib.Manifest,
  topology: topologies.Topology,
  needs: memory_fit.Needs,
  hlo: Mapping[str, str],
) -> str:
  """The summary of a set. It has no times, which no two builds share.

  Args:
    manifest: of the set.
    topology: that it is for.
    needs: of the set.
    hlo: the optimized HLO of each program, by key.
  """
  c = manifest.configuration
  engine = c.engine
  overrides = ''.join(f' {k}={v}' for k, v in c.serving.overrides.items())
  lines = [
    f'{c.serving.model_path}{overrides}',
    f'for {topology.name}: {topology.chips} chips, {topology.devices} devices'
    f' of {topology.chip.kind!r}, mesh {list(c.mesh)} [replica, data, model]',
    f'{engine.num_slots} slots of {engine.rows} rows, prompts to'
    f' {engine.max_prompt} tokens and {engine.max_new_tokens} new ones, KV in'
    f' {engine.kv_dtype}',
    _versions(c.versions),
    f'XLA flags: {len(manifest.xla_flags)}',
    '',
    'GiB on each device; "needs" counts everything that is in memory while the'
    ' program runs.',
    _row('program', _COLUMNS, 'MB', 'collectives in the program'),
  ]
  lines += [_program(p, needs, hlo[p.key]) for p in manifest.programs]
  worst = needs.by_program[needs.worst]
  lines += [
    '',
    f'weights and state {_gib(needs.resident)} GiB, code of all programs'
    f' {_gib(needs.code)} GiB',
    f'{needs.worst!r} needs most: {_gib(worst)} of the {_gib(needs.limit)} GiB'
    f' that XLA lets programs use; {_gib(needs.limit - worst)} GiB are left',
    '',
  ]
  return '\n'.join(lines)


def _program(
  program: manifest_lib.Program, needs: memory_fit.Needs, hlo: str
) -> str:
  m = program.memory
  sizes = (
    m.peak,
    m.arguments,
    m.temporaries,
    m.outputs,
    m.aliased,
    m.code,
    needs.by_program[program.key],
  )
  megabytes = program.files[manifest_lib.EXECUTABLE].bytes / 1e6
  counts = ', '.join(f'{n} {kind}' for kind, n in sorted(_count(hlo).items()))
  return _row(program.key, map(_gib, sizes), f'{megabytes:.1f}', counts)


def _versions(versions: Mapping[str, str]) -> str:
  # The runtime says itself in several lines.
  return ', '.join(f'{k} {" ".join(v.split())}' for k, v in versions.items())


def _row(name: str, sizes, megabytes: str, counts: str) -> str:
  columns = ' '.join(f'{size:>7}' for size in sizes)
  return f'{name:28} {columns} {megabytes:>6}  {counts}'.rstrip()


def _gib(size: int) -> str:
  return f'{size / 2**30:.3f}'
