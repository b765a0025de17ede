"""Adds up XLA's cost estimates in a compiled TPU program.

XLA for TPU annotates each fusion with the cycles that it expects. The sum is
the base of all estimates of speed here. Bodies of loops are multiplied by their
trip counts. XLA does not estimate exchanges between chips, Pallas kernels and
prefetches into the chip's memory. These are listed with their bytes, so that
`rules.py` can compute their time.

If the condition of a loop does not contain the trip count, the number of steps
depends on data. Decoding has such a loop. A program may have one, and its cost
is stored per step. For a conditional, the branch with the most cycles counts.
"""

from collections.abc import Callable, Iterable, Mapping
import dataclasses
import gzip
import hashlib
import math
import pathlib
import re

from benchmarks.tpu_estimate.compiled import costs
from benchmarks.tpu_estimate.compiled import hlo_text
from benchmarks.tpu_estimate.compiled import kernel_costs
from saxml_ext.aot import manifest as manifest_lib
from saxml_ext.aot.tpu import topologies

# These opcodes move no data, or their start was already counted.
_FREE = re.compile(
  r'^(parameter|constant|tuple|get-tuple-element|bitcast|after-all|'
  r'partition-id|replica-id|opt-barrier|optimization-barrier|.*-done)$'
)
_PREFETCHES = (
  'copy-start',
  'slice-start',
  'async-start',
  'dynamic-slice-start',
)
_COLLECTIVE = re.compile(
  r'^(all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)'
  r'(-start)?$'
)
# Names that mark fusions around collectives.
_REDUCE_SCATTER = 'all-reduce-scatter'
_STARTS = 'custom_call_target="AsyncCollectiveStart"'
_PRODUCTS = ('convolution', 'dot')
# jnp.einsum names its products by their spec. In attention, the first dimension
# of both operands and of the result is the request. Products of matrices have
# no such dimension.
_PER_REQUEST = re.compile(r'/([a-z])[a-z]+,\1[a-z]+->\1[a-z]+/')
_MOVES = (
  'copy',
  'transpose',
  'reshape',
  'concatenate',
  'pad',
  'dynamic-update-slice',
  *hlo_text.SLICES,
)
# Without an estimate, XLA writes the largest integer.
_UNKNOWN = 2**62
_PALLAS = 'tpu_custom_call'
# Describes a call of a kernel. The arguments are the call, its computation, and
# the bytes of its operands and results in HBM.
Describe = Callable[
  [hlo_text.Instruction, hlo_text.Computation, float], costs.KernelCall | None
]
# The cost outside of data-dependent loops, and the cost of a step of each loop.
_Costs = tuple[costs.Cost, tuple[costs.Cost, ...]]


def read(
  text: str,
  memory: Mapping[str, int] | None = None,
  describe: Describe = kernel_costs.describe,
) -> costs.Program:
  """Returns the costs of a program.

  Args:
    text: The optimized HLO from `jax.stages.Compiled.as_text()`.
    memory: The memory of the program, see `costs.Program`.
    describe: The function that returns the cost of a Pallas kernel's call. If
      it returns None, the kernel is assumed to read all of its operands once.

  Raises:
    ValueError: The text is not an HLO module, or has several data-dependent
      loops.
  """
  module = hlo_text.parse(text)
  once, steps = _Reader(module, describe).computation(module.entry)
  if len(steps) > 1:
    raise ValueError(
      f'the program has {len(steps)} loops without a known trip count, but'
      ' costs per step support only one.'
    )
  return costs.Program(once, steps[0] if steps else None, memory or {})


def read_set(directory: pathlib.Path) -> costs.Set:
  """Returns the costs of a program set, from the HLO in its directory.

  Args:
    directory: The directory of the set.

  Raises:
    OSError: A file cannot be read.
    ValueError: The directory is not a set for a known TPU slice.
  """
  manifest = manifest_lib.loads((directory / manifest_lib.NAME).read_bytes())
  made_for = manifest.configuration
  programs = {}
  for program in manifest.programs:
    hlo = program.files.get(manifest_lib.OPTIMIZED_HLO)
    if hlo is None:
      raise ValueError(
        f'{directory} has no optimized HLO of {program.key!r}. Estimates need'
        ' a set for TPU, whose compiler reports the expected cycles.'
      )
    packed = (directory / hlo.path).read_bytes()
    if hashlib.sha256(packed).hexdigest() != hlo.sha256:
      raise ValueError(
        f'{directory / hlo.path} is damaged: its SHA-256 differs from the'
        ' manifest. Build the set again.'
      )
    text = gzip.decompress(packed).decode('utf-8')
    programs[program.key] = read(text, dataclasses.asdict(program.memory))
  numbers = {leaf.dtype for leaf in made_for.weights.values()}
  return costs.Set(
    title=made_for.serving.model_path,
    topology=_topology(made_for.target),
    slots=made_for.engine.num_slots,
    beams=made_for.engine.rows,
    kv=made_for.engine.kv_dtype,
    weights='int8' if 'int8' in numbers else 'bfloat16',
    model=dataclasses.asdict(made_for.model),
    compiler=', '.join(f'{k} {v}' for k, v in made_for.versions.items()),
    programs=programs,
    mesh=made_for.mesh,
  )


def _topology(target: manifest_lib.Target) -> str:
  bounds = (*target.bounds, 1, 1, 1)[:3]
  for name, topology in topologies.BY_NAME.items():
    if topology.chip.kind == target.kind and topology.shape == bounds:
      return name.replace('_', ' ')
  raise ValueError(
    f'the set is for {target.devices} x {target.kind} {target.bounds}.'
    f' Available: {", ".join(topologies.BY_NAME)}'
  )


def trip_count(
  module: hlo_text.Module, loop: hlo_text.Instruction
) -> int | None:
  """Returns the trip count of a `while`, or None if it depends on data.

  The trip count is in XLA's annotation. Otherwise it is the only constant in
  the condition, because JAX's loops count from 0 in steps of 1.
  """
  noted = loop.text(r'known_trip_count"?:\{"?n"?:"?(\d+)')
  if noted:
    return int(noted)
  (name,) = loop.called['condition']
  condition = module.computations[name]
  root = hlo_text.root(condition)
  root = hlo_text.root(module.callee(root) or condition)
  if root.opcode != 'compare' or 'direction=LT' not in root.rest:
    return None
  constants = [
    int(digits)
    for i in condition.values()
    if i.opcode == 'constant' and (digits := i.text(r'^\((\d+)\)'))
  ]
  return constants[0] if len(constants) == 1 else None


class _Reader:
  """Walks a module. Each computation is read once."""

  def __init__(self, module: hlo_text.Module, describe: Describe):
    self._module = module
    self._describe = describe
    self._known: dict[str, _Costs] = {}

  def computation(self, name: str) -> _Costs:
    """Returns the cost of a computation, and of a step of each of its loops."""
    if name not in self._known:
      total = costs.Cost()
      steps: tuple[costs.Cost, ...] = ()
      computation = self._module.computations[name]
      for instruction in computation.values():
        cost, more = self._instruction(instruction, computation)
        total += cost
        steps += more
      self._known[name] = (total, steps)
    return self._known[name]

  def _instruction(
    self, i: hlo_text.Instruction, within: hlo_text.Computation
  ) -> _Costs:
    if i.opcode == 'while':
      return self._loop(i)
    if i.opcode == 'conditional':
      names = [n for names in i.called.values() for n in names]
      branches = map(self.computation, names)
      return max(branches, key=lambda branch: branch[0].total_cycles)
    if i.opcode == 'call':
      return self.computation(i.called['to_apply'][0])
    return self._operation(i, within), ()

  def _loop(self, loop: hlo_text.Instruction) -> _Costs:
    body, steps = self.computation(loop.called['body'][0])
    condition, _ = self.computation(loop.called['condition'][0])
    trips = trip_count(self._module, loop)
    if trips is None:
      return costs.Cost(), (body + condition, *steps)
    return (body + condition).times(trips), steps

  def _operation(
    self, i: hlo_text.Instruction, within: hlo_text.Computation
  ) -> costs.Cost:
    if _FREE.match(i.opcode):
      return costs.Cost()
    if i.opcode in _PREFETCHES:
      return costs.Cost(hbm_bytes=hlo_text.prefetched(i))
    exchanges = self._exchanges(i)
    if exchanges:
      return costs.Cost(collectives=exchanges)
    traffic = hlo_text.hbm_bytes(self._module, i, within)
    if i.opcode == 'custom-call' and _PALLAS in i.rest:
      call = self._describe(i, within, traffic)
      if call is None:
        call = costs.KernelCall(hlo_text.kernel_name(i), traffic, 1)
      return costs.Cost(hbm_bytes=call.bytes, kernels=(call,))
    cycles = i.text(r'"estimated_cycles":"?(\d+)')
    if cycles is not None and int(cycles) < _UNKNOWN:
      return costs.Cost({self._kind(i): int(cycles)}, traffic)
    moved = hlo_text.moved(i, within)
    return costs.Cost(
      hbm_bytes=traffic, uncosted=float(moved > 0), uncosted_bytes=moved
    )

  def _exchanges(self, i: hlo_text.Instruction) -> tuple[costs.Collective, ...]:
    """Returns the exchanges of a collective, or of a fusion around one.

    XLA represents a reduce-scatter as an all-reduce and a slice in one fusion.
    It splits an asynchronous collective into fusions for its start, the
    concurrent work and its end. The collective is counted at its start.
    """
    match = _COLLECTIVE.match(i.opcode)
    if match:
      return (_exchange(i, match[1]),)
    if i.opcode != 'fusion':
      return ()
    inner = self._module.callee(i).values()
    scattered = i.called['calls'][0].startswith(_REDUCE_SCATTER)
    if not scattered and not any(_STARTS in x.rest for x in inner):
      return ()
    exchanges = [
      _exchange(x, m[1]) for x in inner if (m := _COLLECTIVE.match(x.opcode))
    ]
    if scattered:
      kind = 'reduce-scatter'
      exchanges = [dataclasses.replace(x, kind=kind) for x in exchanges]
    return tuple(exchanges)

  def _kind(self, i: hlo_text.Instruction) -> str:
    if self._only_moves(i):
      return costs.COPIES
    product = self._product(i)
    if product is None:
      return costs.ELEMENTWISE
    if _PER_REQUEST.search(product.text(r'op_name="([^"]*)"') or ''):
      return costs.ATTENTION
    return costs.MATRICES

  def _only_moves(self, i: hlo_text.Instruction) -> bool:
    """Returns True if an operation only moves values and changes none."""
    if i.opcode == 'fusion':
      return all(map(self._only_moves, self._module.callee(i).values()))
    return i.opcode in _MOVES or bool(_FREE.match(i.opcode))

  def _product(self, i: hlo_text.Instruction) -> hlo_text.Instruction | None:
    """Returns the product of matrices in an operation, if there is one."""
    if i.opcode in _PRODUCTS:
      return i
    products = map(self._product, self._module.callee(i).values())
    return next(filter(None, products), None)


def _exchange(i: hlo_text.Instruction, kind: str) -> costs.Collective:
  group = group_size(i.rest)
  starts = i.opcode.endswith('-start')
  sizes: Iterable[int] = [array.bytes for array in i.arrays]
  if starts and kind != 'all-reduce':
    sizes = [max(sizes)]  # The arrays are operand, result and flags.
  size = sum(sizes)
  if kind == 'reduce-scatter' and not starts:
    size *= group
  return costs.Collective(kind, size, group, 1)


def group_size(attributes: str) -> int:
  """Returns the number of devices in each group of a collective.

  XLA has several notations: `{{0,1},{2,3}}` has groups of 2, `[2,2]<=[4]` has
  groups of 2, and `mesh['x'=1,'y'=4] {'y'}` has groups of 4. The last one may
  also have the order of devices before its axes.

  Raises:
    ValueError: The notation is unknown.
  """
  if m := re.search(
    r'replica_groups=mesh\[([^\]]*)\][^{]*\{([^}]*)\}', attributes
  ):
    axes = dict(re.findall(r"'(\w+)'=(\d+)", m[1]))
    return math.prod(int(axes[axis]) for axis in re.findall(r"'(\w+)'", m[2]))
  if m := re.search(r'replica_groups=\[\d+,(\d+)\]', attributes):
    return int(m[1])
  if m := re.search(r'replica_groups=\{\{([\d,]*)\}', attributes):
    return len(m[1].split(','))
  if 'source_target_pairs' in attributes:
    return 2
  raise ValueError(
    f'the collective {attributes[:300]!r} has no group of devices.'
  )
